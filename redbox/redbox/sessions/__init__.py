"""Sessions: commands and connections inside running jobs, as the jobs' users."""
