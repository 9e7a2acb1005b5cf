"""The vocabulary of Slurm's output: states, times, sizes, arrays."""
