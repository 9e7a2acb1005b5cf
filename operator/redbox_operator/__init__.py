"""The operator: turns SlurmJobs into companions, and Slurm's states into their status."""
