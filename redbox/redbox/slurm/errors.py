"""What can go wrong before Slurm is asked.

RequestRefused the request cannot become a job, whatever Slurm's state: says which part of it, and what to do
"""

from __future__ import annotations


class RequestRefused(Exception):
    """The request is wrong in itself; Slurm was not asked."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
