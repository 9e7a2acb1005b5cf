"""Jobs that depend on others by Slurm id, which must not follow a stranger that was given the same id.

A slurmctld that forgets a job gives its id to another one, and a job that depends on the id then follows the
stranger. While the dependent job waits it is held as soon as the other job is absent, and depends on the next
attempt once that has an id. If it has started, that cannot be undone: it gets a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from redbox.core.domain import JobKey
from redbox.core.workload_manager import JobAction, JobHandle, shows_all_jobs_of
from redbox.jobs.context import Context, JobsComponent
from redbox.jobs.job_actions import JobActions
from redbox.jobs.queue_snapshot import SnapshotIndex, SnapshotMatch, match
from redbox.jobs.record.forgotten import was_shown_to_start
from redbox.jobs.record.record import FORGOTTEN, JobDependency, JobRecord, with_warning
from redbox_api.models import Phase

log = structlog.get_logger(__name__)

AGAIN_S = 10.0
MET_BY_ANY_END = frozenset({"after", "afterany", "afternotok"})
FOLLOWED_A_STRANGER = (
    "It started although Slurm had forgotten job {} ({}), which it depends on: perhaps on the end of another "
    "job that was given this id. Check the data that it starts from."
)


@dataclass(frozen=True, slots=True)
class DependencyVerdict:
    """The dependencies that a waiting job should have, and whether it must wait for one of their jobs."""

    dependencies: tuple[JobDependency, ...]
    changed: bool = False  # a job is gone
    wait: bool = False
    forgotten: JobDependency | None = None  # one that no start can have met


def judge(
    record: JobRecord,
    attempts_of: Callable[[str], Sequence[JobRecord]],
    gone: Callable[[JobRecord], bool],
) -> DependencyVerdict:
    """What became of the jobs that this one depends on. Pure."""
    kept: list[JobDependency] = []
    forgotten: JobDependency | None = None
    changed = wait = False
    for dependency in record.dependencies:
        attempts = sorted(attempts_of(dependency.key) if dependency.key else (), key=attempt_number)
        same_id = [attempt for attempt in attempts if attempt.job_id == dependency.job_id is not None]
        other = same_id[-1] if same_id else None  # an attempt may be given the id of the one before
        if other is None or not gone(other):
            kept.append(dependency)
            continue
        changed, newest = True, attempts[-1]
        if other.lost_reason == FORGOTTEN and dependency.type != "after":
            forgotten = dependency
        if newest is not other and newest.job_id is not None and not gone(newest):
            kept.append(dependency._replace(job_id=newest.job_id))
        elif not (other.phase is Phase.LOST and newest is other and dependency.type in MET_BY_ANY_END):
            kept.append(dependency)
            wait = True
    return DependencyVerdict(tuple(kept), changed, wait, forgotten)


def attempt_number(record: JobRecord) -> int:
    return record.key.attempt


def is_gone(record: JobRecord, snapshot: SnapshotIndex) -> bool:
    """Whether Slurm has forgotten this job, or this poll does not show it."""
    if record.final:
        return not record.end_was_seen
    bound = record.bound_at is not None and snapshot.begun_at > record.bound_at
    return bound and match(record, snapshot).job is None


class Dependents(JobsComponent):
    """Holds, corrects or warns the jobs whose dependencies Slurm has forgotten."""

    def __init__(self, context: Context, actions: JobActions) -> None:
        super().__init__(context)
        self._actions = actions
        self._tried: dict[JobKey, float] = {}

    def follow(self, record: JobRecord, found: SnapshotMatch, snapshot: SnapshotIndex) -> None:
        """After each poll: compare the ids that a job depends on with the marks of their jobs."""
        handle, job = record.handle, found.job
        if not record.dependencies or handle is None or job is None:
            return
        if not shows_all_jobs_of(record.user.uid, snapshot):
            return
        owner = record.key.owner
        verdict = judge(
            record, lambda key: self._store.index.line(owner, key), lambda other: is_gone(other, snapshot)
        )
        if record.phase is not Phase.PENDING:
            if verdict.forgotten is not None and was_shown_to_start(record):
                work = self._warn(record, verdict.forgotten)
                self._background.start(("dependencies", record.key), work)
            return
        is_held = self._workload.states.is_held(job)
        if (verdict.wait and is_held) or not (verdict.changed or record.held_for_dependency):
            return
        now = self._clock.monotonic()
        if now - self._tried.get(record.key, float("-inf")) >= AGAIN_S:
            self._tried[record.key] = now
            work = self._correct(record, handle, verdict)
            self._background.start(("dependencies", record.key), work, of=record.user.uid)

    async def _correct(self, record: JobRecord, handle: JobHandle, verdict: DependencyVerdict) -> None:
        if verdict.wait:
            # First in the journal: a red-box that starts later must know whose hold it is.
            await self._change(record, lambda current: replace(current, held_for_dependency=True))
            await self._actions.act(handle, JobAction.HOLD)
            return
        if verdict.dependencies != record.dependencies:
            texts = [str(dependency) for dependency in verdict.dependencies]
            outcome = await self._context.call(self._workload.depend(handle, texts))
            if not outcome.done:
                log.warning("%s: its dependencies could not be corrected: %s", record.key, outcome.detail)
                return
            await self._change(record, lambda current: replace(current, dependencies=verdict.dependencies))
        if record.held_for_dependency and not record.hold and not record.held_retry:
            outcome = await self._actions.act(handle, JobAction.RELEASE)
            if not outcome.done and not outcome.gone:
                log.warning("%s: it could not be released: %s", record.key, outcome.detail)
                return
        await self._change(record, lambda current: replace(current, held_for_dependency=False))

    async def _warn(self, record: JobRecord, dependency: JobDependency) -> None:
        warning = FOLLOWED_A_STRANGER.format(dependency.job_id, dependency.key)
        await self._change(record, lambda current: with_warning(replace(current, dependencies=()), warning))

    async def _change(self, record: JobRecord, decide: Callable[[JobRecord], JobRecord]) -> None:
        await self._store.change_one(record.key, decide)
