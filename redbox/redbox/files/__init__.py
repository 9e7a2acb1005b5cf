"""Files in the working directories of jobs, reached with their users' rights alone."""
