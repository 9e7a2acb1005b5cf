"""Slurm's partitions as red-box reports them, and what an administrator overrides."""
