"""Accountings: slurmdbd, its database, and the users that it has to know."""
