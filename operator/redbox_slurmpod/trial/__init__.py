"""A new configuration, tried by daemons of its own in a scratch pod."""
