"""Acting as users: one agent for each who is active, started by sudo, ssh or as oneself."""
