"""Starting agents as a user: `self_` (the server's own user), `sudo`, `ssh`."""
