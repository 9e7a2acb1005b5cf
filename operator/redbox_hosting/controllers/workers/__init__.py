"""NodeSets and their workers: pods in Kubernetes, nodes in Slurm, and the gate between both."""
