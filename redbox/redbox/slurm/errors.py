"""RequestRefused: the request cannot become a job, whatever Slurm's state."""

from __future__ import annotations


class RequestRefused(Exception):
    """The request is wrong in itself; Slurm was not asked. `detail` names the field, and what to do."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
