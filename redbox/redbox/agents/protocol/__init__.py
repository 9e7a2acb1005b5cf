"""The server's side of the protocol with agents."""
