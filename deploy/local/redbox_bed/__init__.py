"""The bed: a real Slurm beside a real Kubernetes on one machine, made of namespaces."""
