"""Makes docs/reference/errors.md: all error texts of the product, each with its cause and cure."""
