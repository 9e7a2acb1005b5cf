"""Copies of slurmctld's state and of the database, as pairs: made, and put back before slurmctld starts."""
