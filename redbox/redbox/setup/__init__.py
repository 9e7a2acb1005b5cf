"""Setup of a login node: `install` for `redbox init` and `redbox uninstall`, `checks` for `redbox check`."""
