"""What the controller of NodeSets writes: marks, pods, nodes of Slurm, records, deletions."""
