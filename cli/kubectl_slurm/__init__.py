"""`kubectl slurm`: SlurmJobs for those who think in sbatch and squeue."""
