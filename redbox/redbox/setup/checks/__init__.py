"""`redbox check`: the problems of this host, each with its cure."""
