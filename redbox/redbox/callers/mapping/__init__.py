"""Which Unix user acts for a caller: the administrator's rules."""
