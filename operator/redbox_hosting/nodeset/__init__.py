"""Decisions about workers, each over one snapshot of Slurm and of Kubernetes. Pure: no I/O, no clock."""
