"""Sessions in running jobs: what is on the wire, and a client."""
