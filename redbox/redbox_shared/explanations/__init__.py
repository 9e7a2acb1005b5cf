"""Cause and cure of each error by the reason or title that it shows.

`kubectl slurm doctor` and docs/reference/errors.md have them from here. An error whose reason is not
here fails a test.
"""
