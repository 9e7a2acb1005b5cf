"""The only way to the API server: the kubectl that called this plugin."""
