"""Verifying tokens: of ServiceAccounts, by JWKS or TokenReview, and opaque ones."""
