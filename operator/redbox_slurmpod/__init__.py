"""What runs in the pods of a hosted Slurm cluster beside Slurm's own daemons. Standard library only."""
