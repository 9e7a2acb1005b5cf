"""Who calls, and which Unix user that is.

Proofs of identity: `tokens` (ServiceAccount tokens, with `claims`, `key_sets`, `token_review`),
`opaque_tokens`, `peers` (the Unix socket). What the administrator makes of an identity: `rules`, `mapping`,
`accounts`. The door that HTTP knocks at is `authenticator`.
"""
