"""HTTP/1.1 over TLS."""
