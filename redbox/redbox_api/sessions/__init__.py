"""Sessions in a running job, and connections to its ports."""
