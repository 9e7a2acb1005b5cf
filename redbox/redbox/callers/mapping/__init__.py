"""The administrator's rules, which map callers to Unix users."""
