"""A job as the workload manager shows it: its fields are declared here, once, for rows, polls and records.

The contract's own are those of `redbox_api.models.Job`; `jobs.record.api_view` makes the one of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from redbox.core.domain import JobShape


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFields:
    """The fields of a whole job and of each part of it; `state` is Slurm's base state or flag alone."""

    state: str = ""
    reason: str = ""
    name: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    nodes: str = ""  # hostlist as given: n[1-3]
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    restarts: int = 0
    stdout: str | None = None
    stderr: str | None = None
    working_directory: str = ""


@dataclass(frozen=True, slots=True)
class TaskObservation:
    """One task of an array. The journal stores its fields in this order."""

    index: int
    job_id: str
    state: str
    exit_code: int | None = None
    signal: int | None = None
    restarts: int = 0
    own_id: str = ""  # the id that it has as a job; where its output is named by it
    node: str = ""  # the first that it has; likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStatus(JobFields):
    """A whole job, as its record keeps it; stdout and stderr with their patterns resolved where possible."""

    exit_code: int | None = None
    signal: int | None = None
    component_nodes: tuple[str, ...] = ()  # of a het job: that of each component
    requeue: bool = True  # may be requeued (Requeue=1), which makes some ends not final
    cancelled_by: int | None = None
    pending_tasks: int = 0  # of an array: tasks that are not split off yet
    array_size: int = 0  # 0: not an array
    tasks: tuple[TaskObservation, ...] = ()

    def task(self, index: int | None) -> TaskObservation | None:
        """The task of this index, if the workload manager has shown it."""
        return next((task for task in self.tasks if task.index == index), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation(ObservedStatus):
    """One job in a poll or in the accounting: an array and a het job are one observation each.

    `mark` is whatever the job carries as comment (or in its submit line): unverified text that any user can
    forge.
    """

    job_id: str
    uid: int
    mark: str
    live: bool  # from the queue (True) or from history (False)
    user: str = ""
    comment: str = ""
    waiting: tuple[range, ...] = ()  # pending tasks, and those that wait again: none of them is in `tasks`
    shape: JobShape | None = None  # None: the workload manager does not show it
