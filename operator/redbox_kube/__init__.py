"""What the operator and resourced share of Kubernetes: objects, the SlurmCluster, names on nodes."""
