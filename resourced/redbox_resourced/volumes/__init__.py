"""PersistentVolumes that are folders on a Slurm cluster, and where a claim's volume is on its nodes."""
