"""One module a Slurm command: its argument list, and the parser of its output."""
