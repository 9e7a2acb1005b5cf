"""One look at the queue, sorted out: which of the jobs that it shows is whose. Pure.

A job counts only if it carries the record's mark, which the journal knows to the letter, and if Slurm's own
uid for it is the record's: a mark that bob copied from alice says nothing. A job id alone never counts,
because a slurmctld that died young gives ids out twice. What is absent, only a look that shows all jobs of
the record's user tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from redbox.core.workload_manager import Observation, QueueSnapshot
from redbox.jobs.record.record import JobRecord, Stage
from redbox.jobs.store.record_index import RecordIndex

LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SnapshotIndex:
    """What a poll showed, of those jobs that can matter here."""

    begun_at: datetime
    complete: bool
    doubtful: frozenset[str] = frozenset()
    by_mark: dict[str, list[Observation]] = field(default_factory=dict)
    by_id: dict[str, list[Observation]] = field(default_factory=dict)
    whole: frozenset[int] = frozenset()  # uids of users whose own jobs it shows all, if it is not complete


def index_snapshot(poll: QueueSnapshot, begun_at: datetime, table: RecordIndex) -> SnapshotIndex:
    """Keep the jobs that carry a known mark, or a watched record's id; others, however many, are let go."""
    by_mark, by_id = sort_observations(poll.jobs, table, {r.job_id for r in table.watched()})
    return SnapshotIndex(begun_at, poll.complete, poll.doubtful, by_mark, by_id, poll.whole)


def wanted_filter(table: RecordIndex) -> Callable[[str, str], bool]:
    """Whether a job with this id and this mark can matter to any record."""
    ids = {record.job_id for record in table.watched()}
    return lambda job_id, mark: job_id in ids or table.marked(mark) is not None


def sort_observations(
    jobs: Iterable[Observation], table: RecordIndex, ids: set[str | None]
) -> tuple[dict[str, list[Observation]], dict[str, list[Observation]]]:
    """By mark where mark and uid are a record's, by id where a record has that id."""
    by_mark: dict[str, list[Observation]] = {}
    by_id: dict[str, list[Observation]] = {}
    for job in jobs:
        record = table.marked(job.mark)
        if record is not None and record.user.uid == job.uid:
            by_mark.setdefault(job.mark, []).append(job)
        if job.job_id in ids:
            by_id.setdefault(job.job_id, []).append(job)
    return by_mark, by_id


@dataclass(frozen=True, slots=True)
class SnapshotMatch:
    """What a look says of one record."""

    job: Observation | None = None  # its job
    duplicates: tuple[Observation, ...] = ()  # others with its mark and uid
    stranger: Observation | None = None  # another's job, under its id
    unclear: bool = False  # two different answers for its id: nothing follows
    mark_changed: bool = False


def was_refused(job: Observation) -> bool:
    """Of a submit that it refuses Slurm keeps a row, with its mark, that never had a node: it is no job."""
    no_exit = job.exit_code is None and job.signal is None
    return job.state == "FAILED" and not job.nodes and no_exit


def submit_order(job: Observation) -> tuple[datetime, int]:
    """The earliest wins; ids decide within a second."""
    digits = "".join(c for c in job.job_id if c.isdigit())
    return (job.submitted_at or LONG_AGO, int(digits or 0))


def match(record: JobRecord, look: SnapshotIndex) -> SnapshotMatch:
    """Which job is the record's in this look."""
    marked = sorted(look.by_mark.get(record.mark, ()), key=submit_order)
    ours = [job for job in marked if job.job_id == record.job_id or not was_refused(job)]
    if record.job_id is None:
        return SnapshotMatch(ours[0], tuple(ours[1:])) if ours else SnapshotMatch()
    mine = next((job for job in ours if job.job_id == record.job_id), None)
    others = tuple(job for job in ours if job is not mine)
    if mine is not None:
        return SnapshotMatch(mine, others)
    if record.job_id in look.doubtful:
        return SnapshotMatch(duplicates=others, unclear=True)
    if ours and not record.confirmed:  # the id came from the user's agent, which is not believed
        return SnapshotMatch(ours[0], tuple(ours[1:]))
    there = look.by_id.get(record.job_id, ())
    for job in there:
        if is_same_without_mark(record, job):
            return SnapshotMatch(job, others, mark_changed=True)
    return SnapshotMatch(duplicates=others, stranger=next(iter(there), None))


def is_same_without_mark(record: JobRecord, job: Observation) -> bool:
    """The user changed the job's comment: id, uid and the moment of its submit are still the same."""
    known = record.status.submitted_at
    same_moment = known is not None and known == job.submitted_at
    return record.confirmed and same_moment and job.uid == record.user.uid


def bind(record: JobRecord, job_id: str, now: datetime) -> JobRecord:
    """The record with this id; its view begins anew where it had another."""
    if record.job_id == job_id and record.stage is Stage.BOUND:
        return record
    return replace(record, stage=Stage.BOUND, job_id=job_id, bound_at=now, confirmed=False)
