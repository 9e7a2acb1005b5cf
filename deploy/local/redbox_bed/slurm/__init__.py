"""The bed's Slurm clusters: configuration, accounts, shared files, daemons."""
