"""What the operator and resourced share of Slurm: SlurmClusters, names on objects, virtual nodes, tokens."""
