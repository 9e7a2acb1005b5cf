"""Makes pages of docs/reference from what the product declares."""
