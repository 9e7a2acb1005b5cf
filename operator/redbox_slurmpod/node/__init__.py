"""This pod's node in Slurm: its record, and the hooks that write to it."""
