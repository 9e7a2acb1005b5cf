"""`redbox init` and `redbox uninstall`: the files on this host, and their removal."""
