"""Slurm's own metrics, by the names and labels of slurmctld since 25.11, from what commands show. Pure."""
