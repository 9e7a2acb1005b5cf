"""`redbox check`: what is wrong on this host, with the fix for each."""
