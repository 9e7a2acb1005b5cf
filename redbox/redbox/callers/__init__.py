"""Authentication of callers, and their mapping to Unix users.

Proofs of identity: `tokens` (ServiceAccount tokens and opaque tokens) and `peers` (the Unix socket). The
administrator's rules for an identity: `mapping`, with `unix_accounts`. The entry point is `authenticator`.
"""
