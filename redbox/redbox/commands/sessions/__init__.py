"""Commands into running jobs: `redbox exec`, `redbox shell`, `redbox forward`."""
