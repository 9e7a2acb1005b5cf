"""red-box, the REST proxy on a Slurm login node: submits, watches, cancels, streams, as the calling user."""
