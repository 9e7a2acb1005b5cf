"""The fields that the rows of squeue and of sacct have in common."""

from __future__ import annotations

from dataclasses import dataclass

from redbox.core.domain import JobShape
from redbox.core.observations import JobFields
from redbox.slurm.text.states import Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow(JobFields):
    """One job, one task or component of it, or the tasks of an array that were never split off."""

    array_task: str | None  # "7", or for what is not split off yet "8-20:2%3"
    is_het: bool  # one component of a heterogeneous job
    het_offset: int
    uid: int
    user: str
    exit: Exit

    @property
    def shape(self) -> JobShape:
        """That of the job which this is a part of, or all of."""
        if self.array_task is not None:
            return JobShape.ARRAY
        return JobShape.HETEROGENEOUS if self.is_het else JobShape.PLAIN
