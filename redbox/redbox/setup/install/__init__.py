"""`redbox init` and `redbox uninstall`: what is written on this host, and removed again."""
