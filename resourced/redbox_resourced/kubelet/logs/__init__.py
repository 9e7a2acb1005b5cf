"""`kubectl logs` of a pod on a virtual node, read from red-box."""
