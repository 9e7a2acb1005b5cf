"""The fields that the rows of squeue and of sacct have in common."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from redbox.core.domain import JobShape
from redbox.slurm.text.states import Exit


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job, one task or component of it, or the tasks of an array that were never split off."""

    array_task: str | None  # "7", or for what is not split off yet "8-20:2%3"
    is_het: bool  # one component of a heterogeneous job
    het_offset: int
    uid: int
    state: str
    exit: Exit
    restarts: int
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    reason: str
    partition: str
    account: str
    qos: str
    nodes: str
    user: str
    name: str
    stdout: str | None
    stderr: str | None
    working_directory: str

    @property
    def shape(self) -> JobShape:
        """That of the job which this is a part of, or all of."""
        if self.array_task is not None:
            return JobShape.ARRAY
        return JobShape.HETEROGENEOUS if self.is_het else JobShape.PLAIN
