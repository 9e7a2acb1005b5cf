"""The ways to become a user: `self_` (be that user already), `sudo`, `ssh`."""
