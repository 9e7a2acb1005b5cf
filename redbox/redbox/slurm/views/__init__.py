"""From rows of Slurm's output to jobs and partitions. Pure."""
