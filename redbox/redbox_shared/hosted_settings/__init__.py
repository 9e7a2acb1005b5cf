"""What users of hosted Slurm may write: lines of configurations and how they are read, and pods."""
