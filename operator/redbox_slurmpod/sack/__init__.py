"""Slurm's authentication socket, for the release whose packages lack sackd."""
