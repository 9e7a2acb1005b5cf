"""From sbatch's command line to a SlurmJob. Pure."""
