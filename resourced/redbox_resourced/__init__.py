"""resourced: publishes Slurm's partitions in Kubernetes, as labels, extended resources and virtual nodes."""
