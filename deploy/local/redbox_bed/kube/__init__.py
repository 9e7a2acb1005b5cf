"""The bed's Kubernetes: keys, configuration, daemons, and one that the user has."""
