"""SlurmJobs as users of Slurm think of them. Pure."""
