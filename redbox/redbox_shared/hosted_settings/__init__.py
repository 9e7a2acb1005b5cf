"""The lines of Slurm's configurations that users of hosted Slurm may write, and how they are read."""
