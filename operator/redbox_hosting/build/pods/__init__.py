"""The objects of a cluster's daemons. Pure."""
