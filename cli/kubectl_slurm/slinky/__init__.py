"""From manifests of Slinky's slurm-operator to those of hosted Slurm."""
