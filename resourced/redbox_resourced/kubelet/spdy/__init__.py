"""SPDY/3.1 as API servers speak it to kubelets: framing without I/O, and sessions over a connection."""
