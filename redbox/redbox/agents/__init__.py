"""Acting as a user: one agent per active user, started through sudo, ssh or as oneself, spoken to in frames."""
