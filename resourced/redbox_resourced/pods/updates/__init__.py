"""Changes of a pod while its job exists: what its files are made of, and its deadline."""
