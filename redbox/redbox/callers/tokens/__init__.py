"""Verification of tokens: those of ServiceAccounts, by JWKS and TokenReview, and opaque ones."""
