"""Schemas in the form of the API server, and the page that is generated from them."""
