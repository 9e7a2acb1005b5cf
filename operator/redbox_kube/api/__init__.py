"""Access to the Kubernetes API server: objects, informers, leases, events."""
