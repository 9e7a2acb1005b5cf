"""TLS listeners with client certificates, limits and renewal."""
