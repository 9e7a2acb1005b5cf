"""Pure builders: Slurm's files, and the objects of a cluster."""
