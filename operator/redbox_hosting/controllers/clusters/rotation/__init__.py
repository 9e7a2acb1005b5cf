"""Rotation of the keys of a cluster, while its jobs and clients go on."""
