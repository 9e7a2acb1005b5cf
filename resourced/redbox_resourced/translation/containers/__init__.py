"""Containers, init containers and sidecars, with their images, variables, probes and hooks."""
