"""The checks of `doctor`, in the order of the chain from this terminal to Slurm."""
