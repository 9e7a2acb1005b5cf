"""Slurm's configuration files, as text. Pure."""
