"""Runs a daemon of Slurm as systemd would, and reaps what it leaves behind."""
