"""The commands of `redbox`, a module each: they ask and show; what is decided is decided elsewhere."""
