"""OCI images without a daemon, and the ones that the bed's nodes have."""
