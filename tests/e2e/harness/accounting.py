"""What sacct is asked for."""

SINCE = "--starttime=now-12hours"
"""Its own default is midnight, so that it shows no job that ended just before; with job ids it has none."""
