"""Kubernetes and Slurm of as many workers as asked for, without kubelets and daemons, in one process."""
