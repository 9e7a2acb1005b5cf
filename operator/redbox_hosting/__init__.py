"""The operator of hosted Slurm clusters: slurmctld, slurmd, slurmdbd, logins and slurmrestd as pods."""
