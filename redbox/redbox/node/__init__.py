"""What the programs on a job's node share: modules that are joined into each of them."""
