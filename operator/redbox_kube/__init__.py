"""The kit of the controllers: the API server, statuses, CRDs, processes. Nothing of Slurm."""
