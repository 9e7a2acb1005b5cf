"""One poll of the queue, indexed: which of the jobs that it shows belongs to which record. Pure.

A job counts only if it carries the record's mark, which the journal has to the letter, and if Slurm's own uid
for it is the record's: a mark that bob copied from alice proves nothing. A job id alone never counts, because
a slurmctld that died young gives ids out twice. Only a poll that shows all jobs of the record's user proves
absence. An array or a heterogeneous job that was not submitted as one is not the record's, and nothing
follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from redbox.core.domain import JobShape
from redbox.core.observations import Observation
from redbox.core.workload_manager import QueueSnapshot
from redbox.jobs.record import marks
from redbox.jobs.record.record import JobRecord, Stage
from redbox.jobs.store.record_index import RecordIndex

LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SnapshotIndex:
    """The jobs of a poll that concern any record."""

    begun_at: datetime
    complete: bool
    ambiguous: frozenset[str] = frozenset()
    by_mark: dict[str, list[Observation]] = field(default_factory=dict)
    by_id: dict[str, list[Observation]] = field(default_factory=dict)
    boot_time: str = ""
    whole: frozenset[int] = frozenset()  # if incomplete: uids of the users whose own jobs it shows all


def index_snapshot(queue: QueueSnapshot, begun_at: datetime, index: RecordIndex) -> SnapshotIndex:
    """Keep the jobs that carry a record's mark, or a watched record's id; drop the others, however many."""
    by_mark, by_id = sort_observations(queue.jobs, index, {r.job_id for r in index.watched()})
    return SnapshotIndex(
        begun_at, queue.complete, queue.ambiguous, by_mark, by_id, queue.boot_time, queue.whole
    )


def wanted_filter(index: RecordIndex) -> Callable[[str, str], bool]:
    """Whether a job with this id and this mark concerns any record."""
    ids = {record.job_id for record in index.watched()}
    return lambda job_id, mark: job_id in ids or index.marked(mark) is not None


def sort_observations(
    jobs: Iterable[Observation], index: RecordIndex, ids: set[str | None]
) -> tuple[dict[str, list[Observation]], dict[str, list[Observation]]]:
    """By mark if mark and uid are a record's, by id if it is among `ids`."""
    by_mark: dict[str, list[Observation]] = {}
    by_id: dict[str, list[Observation]] = {}
    for job in jobs:
        record = index.marked(job.mark)
        if record is not None and record.user.uid == job.uid:
            by_mark.setdefault(job.mark, []).append(job)
        if job.job_id in ids:
            by_id.setdefault(job.job_id, []).append(job)
    return by_mark, by_id


@dataclass(frozen=True, slots=True)
class SnapshotMatch:
    """The part of a poll that concerns one record."""

    job: Observation | None = None  # its job
    duplicates: tuple[Observation, ...] = ()  # others with its mark and uid
    stranger: Observation | None = None  # another's job, under its id
    unclear: bool = False  # two different answers for its id: nothing follows
    mark_changed: bool = False


def was_refused(job: Observation) -> bool:
    """Slurm keeps a row of a submit that it refuses, with its mark and without nodes: it is not a job."""
    no_exit = job.exit_code is None and job.signal is None
    return job.state == "FAILED" and not job.nodes and no_exit


def submit_order(job: Observation) -> tuple[datetime, int]:
    """The earliest first; ids decide within a second."""
    digits = "".join(c for c in job.job_id if c.isdigit())
    return (job.submitted_at or LONG_AGO, int(digits or 0))


def match(record: JobRecord, snapshot: SnapshotIndex) -> SnapshotMatch:
    found = _match_any_shape(record, snapshot)
    if found.job is not None and not is_as_submitted(record, found.job):
        return SnapshotMatch(unclear=True)
    return found


def _match_any_shape(record: JobRecord, snapshot: SnapshotIndex) -> SnapshotMatch:
    marked = sorted(snapshot.by_mark.get(record.mark, ()), key=submit_order)
    jobs = [job for job in marked if job.job_id == record.job_id or not was_refused(job)]
    if record.job_id is None:
        return SnapshotMatch(jobs[0], tuple(jobs[1:])) if jobs else SnapshotMatch()
    own = next((job for job in jobs if job.job_id == record.job_id), None)
    others = tuple(job for job in jobs if job is not own)
    if own is not None:
        return SnapshotMatch(own, others)
    if record.job_id in snapshot.ambiguous:
        return SnapshotMatch(duplicates=others, unclear=True)
    if jobs and not record.confirmed:  # the id came from the user's agent, which is not trusted
        return SnapshotMatch(jobs[0], tuple(jobs[1:]))
    with_id = snapshot.by_id.get(record.job_id, ())
    for job in with_id:
        if is_same_without_mark(record, job):
            return SnapshotMatch(job, others, mark_changed=True)
    return SnapshotMatch(duplicates=others, stranger=next(iter(with_id), None))


def is_same_without_mark(record: JobRecord, job: Observation) -> bool:
    """The user changed the job's comment: id, uid and time of submit are still the same.

    A job that carries any mark is another one: an id can be given out twice within a second.
    """
    submitted_at = record.status.submitted_at
    same_time = submitted_at is not None and submitted_at == job.submitted_at
    same_user = job.uid == record.user.uid
    return record.confirmed and same_time and same_user and marks.parse(job.mark) is None


def is_as_submitted(record: JobRecord, job: Observation) -> bool:
    """Whether it has the submitted shape; Slurm shows an array as plain once it forgets its tasks."""
    return record.shape is None or job.shape in {None, JobShape.PLAIN, record.shape}


def bind(record: JobRecord, job_id: str, now: datetime) -> JobRecord:
    """The record with this id, unconfirmed by a poll if it had another one or none."""
    if record.job_id == job_id and record.stage is Stage.BOUND:
        return record
    return replace(record, stage=Stage.BOUND, job_id=job_id, bound_at=now, confirmed=False)
