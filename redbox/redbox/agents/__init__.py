"""Acting as users: an agent process for each active user, started by sudo, ssh or directly."""
