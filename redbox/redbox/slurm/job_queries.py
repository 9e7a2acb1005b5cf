"""What is read of jobs: the queue as a whole, single jobs, and what the accounting remembers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from redbox.core.domain import UnixUser
from redbox.core.workload_manager import (
    AccountingSnapshot,
    FoundJobs,
    Observation,
    QueueSnapshot,
    StepUsage,
    WorkloadManagerError,
)
from redbox.slurm.cluster_queries import ClusterQueries
from redbox.slurm.command_runner import CommandRunner
from redbox.slurm.commands import sacct, squeue, sstat
from redbox.slurm.per_user_queries import PerUserQueries
from redbox.slurm.text.error_messages import words_of
from redbox.slurm.text.record_format import ParseReport, RecordFormat, decode, new_token
from redbox.slurm.views.accounting_jobs import build_accounting_jobs, with_whole_exits
from redbox.slurm.views.queue_jobs import QueueJobBuilder, build_queue_jobs

JSON_CHUNK = 200  # ids in one call for whole exit codes: some 5 kB each


@dataclass(frozen=True, slots=True)
class QueueAnswer:
    """What one who looked out showed of the queue."""

    jobs: tuple[Observation, ...]
    doubtful: frozenset[str]
    tally: ParseReport

    @property
    def whole(self) -> bool:
        return self.tally.complete and not self.doubtful


@dataclass(frozen=True, slots=True)
class AccountingAnswer:
    """What one sees in the accounting."""

    rows: tuple[sacct.AccountingRow, ...]
    whole: bool


class JobQueries:
    """Reads through the observer's agent; through the users' own where Slurm hides jobs from the observer.

    A user's agent shows what its user wants: it is asked for, and believed of, that user's own jobs alone.
    """

    def __init__(
        self,
        calls: CommandRunner,
        inventory: ClusterQueries,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._calls = calls
        self._inventory = inventory
        self._now = now
        self._monotonic = monotonic
        self._users: frozenset[UnixUser] = frozenset()
        self._lookouts, self._finders, self._accountants = (PerUserQueries(monotonic) for _ in range(3))
        self._rows = squeue.RowReader()
        self._folders: dict[UnixUser, QueueJobBuilder] = {}
        self._can_glance = True  # until squeue says that it cannot
        self._history_fields: tuple[str, ...] | None = None

    # ------------------------------------------------------------------------------------------ the queue
    async def poll(
        self, users: Collection[UnixUser] | None, wanted: squeue.RecordFilter | None
    ) -> QueueSnapshot:
        at, started = self._now(), self._monotonic()
        self._rows.begin()
        private = await self._are_jobs_private()
        if users is not None:
            self._users = frozenset(users)
        own = private and users is not None
        readers = in_order(self._users) if own else [self._calls.observer]
        self._folders = {reader: self._folders.get(reader) or QueueJobBuilder() for reader in readers}

        async def look(reader: UnixUser, deadline: float | None) -> QueueAnswer:
            frame = RecordFormat.new(squeue.FIELDS)
            text = await self._queue_of(reader, frame, self._asked_of(reader, users, own=own), deadline)
            return self._view(reader, text, frame, wanted, own=own)

        answers = await self._lookouts.ask(readers, look)
        views = {reader: view for reader, view in answers.items() if isinstance(view, QueueAnswer)}
        took_s = self._monotonic() - started
        if own:
            return merged(views, at, took_s, complete=len(views) == len(readers))
        view = views[self._calls.observer]
        complete = view.tally.complete and not private
        return QueueSnapshot(at, took_s, view.jobs, complete, view.tally.dropped, view.doubtful)

    def _view(
        self,
        reader: UnixUser,
        text: str,
        frame: RecordFormat,
        wanted: squeue.RecordFilter | None,
        *,
        own: bool,
    ) -> QueueAnswer:
        tally = ParseReport()
        rows = self._rows.read(text, frame, tally, wanted)
        jobs, doubtful = self._folders[reader].build(row for row in rows if not own or row.uid == reader.uid)
        return QueueAnswer(jobs, doubtful, tally)

    async def _queue_of(
        self, reader: UnixUser, frame: RecordFormat, asked: tuple[str, ...], deadline: float | None
    ) -> str:
        """The queue's text; of all users where squeue does not know one of those asked for."""
        argv = squeue.all_jobs(frame, asked)
        completed = await self._calls.complete(reader, argv, env=squeue.ENVIRONMENT, deadline=deadline)
        if completed.code == 0 and not completed.stderr:
            return decode(completed.stdout)
        return await self._calls.read(squeue.all_jobs(frame), user=reader, env=squeue.ENVIRONMENT)

    def _asked_of(
        self, reader: UnixUser, users: Collection[UnixUser] | None, *, own: bool
    ) -> tuple[str, ...]:
        """The uids of those whose jobs this one is asked for; none is all."""
        if own:
            return (str(reader.uid),)
        if users is None or not 0 < len(users) <= self._calls.settings.users_at_most:
            return ()
        return tuple(sorted(str(user.uid) for user in users))

    async def _are_jobs_private(self) -> bool:
        return "jobs" in (await self._inventory.facts()).configuration.private_data

    async def glance(self, job_ids: Collection[str]) -> int | None:
        """None where squeue cannot (before 23.11), or where Slurm hides jobs from the observer."""
        if not self._can_glance or await self._are_jobs_private():
            return None
        completed = await self._calls.complete(self._calls.observer, squeue.states(), env=squeue.ENVIRONMENT)
        if completed.code == 0:
            return squeue.fingerprint(decode(completed.stdout), job_ids)
        words = words_of(completed.stderr)
        if squeue.UNKNOWN_OPTION in words:
            self._can_glance = False
            return None
        raise WorkloadManagerError(f"squeue failed: {words}")

    async def find_live(
        self, job_ids: Collection[str], users: Collection[UnixUser] | None = None
    ) -> FoundJobs:
        """Single jobs; those that Slurm does not know are not among them."""
        if not await self._are_jobs_private():
            rows = await self.rows_of(self._calls.observer, job_ids)
            return FoundJobs(build_queue_jobs(rows)[0], complete=True)

        async def find(reader: UnixUser, deadline: float | None) -> tuple[Observation, ...]:
            rows = await self.rows_of(reader, job_ids, deadline)
            return build_queue_jobs(row for row in rows if row.uid == reader.uid)[0]

        readers = in_order(self._users if users is None else users)
        answers = await self._finders.ask(readers, find)
        found = {
            reader: jobs for reader, jobs in answers.items() if not isinstance(jobs, WorkloadManagerError)
        }
        return FoundJobs(
            each_once(job for jobs in found.values() for job in jobs),
            complete=len(found) == len(readers) > 0,
            whole=frozenset(reader.uid for reader in found),
        )

    async def rows_of(
        self, reader: UnixUser, job_ids: Collection[str], deadline: float | None = None
    ) -> list[squeue.QueueRow]:
        """The rows of these jobs, as this user may see them."""
        frame, tally = RecordFormat.new(squeue.FIELDS), ParseReport()
        argv = squeue.single_jobs(frame, sorted(job_ids))
        completed = await self._calls.complete(reader, argv, env=squeue.ENVIRONMENT, deadline=deadline)
        if completed.code != 0:
            words = words_of(completed.stderr)
            if squeue.UNKNOWN_JOB in words:
                return []
            raise WorkloadManagerError(f"squeue failed: {words}")
        rows = list(squeue.read_rows(decode(completed.stdout), frame, tally))
        if not tally.complete:
            raise WorkloadManagerError("squeue's answer could not be read whole")
        return rows

    async def usage(self, user: UnixUser, job_ids: Collection[str]) -> tuple[StepUsage, ...]:
        """As measured by the slurmds: they tell only the jobs' own user."""
        return tuple(sstat.read_rows(await self._calls.read(sstat.of_jobs(sorted(job_ids)), user=user)))

    # ------------------------------------------------------------------------------------- the accounting
    async def history(
        self, job_ids: Collection[str], users: Collection[UnixUser] | None = None
    ) -> AccountingSnapshot:
        ordered = sorted(job_ids)
        chunks = [ordered[start : start + sacct.CHUNK] for start in range(0, len(ordered), sacct.CHUNK)]
        questions = [partial(sacct.of_jobs, job_ids=chunk) for chunk in chunks]
        if not await self._inventory.is_history_private():
            return await self._history(questions, [self._calls.observer], own=False)
        return await self._history(questions, in_order(self._users if users is None else users), own=True)

    async def history_of(self, user: UnixUser, since: datetime) -> AccountingSnapshot:
        return await self._history([partial(sacct.of_user, user=user.name, since=since)], [user], own=True)

    async def _history(
        self,
        questions: Sequence[Callable[[Collection[str], str], list[str]]],
        readers: Collection[UnixUser],
        *,
        own: bool,
    ) -> AccountingSnapshot:
        """All rows that they see; `own`: each of them the own ones only."""
        if not (await self._inventory.facts()).configuration.accounting:
            return AccountingSnapshot((), complete=True, available=False)
        fields = await self._fields()

        async def look_up(reader: UnixUser, deadline: float | None) -> AccountingAnswer:
            tally = ParseReport()
            rows: list[sacct.AccountingRow] = []
            for question in questions:
                token = new_token()
                text = await self._ask(question(fields, token), reader, deadline)
                rows += sacct.read_rows(text, fields, token, tally)
            seen = [row for row in dict.fromkeys(rows) if not own or row.uid == reader.uid]
            codes = await self._whole_exits(seen, reader, deadline)
            return AccountingAnswer(with_whole_exits(seen, codes), tally.complete)

        answers = await self._accountants.ask(readers, look_up)
        told = {reader: answer for reader, answer in answers.items() if isinstance(answer, AccountingAnswer)}
        whole = [reader for reader, answer in told.items() if answer.whole]
        return AccountingSnapshot(
            build_accounting_jobs(row for answer in told.values() for row in answer.rows),
            complete=len(whole) == len(readers) > 0,
            whole=frozenset(reader.uid for reader in whole if own),
        )

    async def _ask(self, argv: list[str], user: UnixUser, deadline: float | None) -> str:
        deadline = deadline or self._calls.settings.accounting_s
        return await self._calls.read(argv, user=user, env=sacct.ENVIRONMENT, deadline=deadline)

    async def _fields(self) -> tuple[str, ...]:
        """Asked once: what this release of sacct knows."""
        if self._history_fields is None:
            fields = sacct.read_field_names(await self._calls.read(sacct.field_names()))
            if not set(fields) >= sacct.NEEDED:
                raise WorkloadManagerError(
                    f"sacct lacks the fields {', '.join(sorted(sacct.NEEDED - set(fields)))}"
                )
            self._history_fields = fields
        return self._history_fields

    async def _whole_exits(
        self, rows: Iterable[sacct.AccountingRow], reader: UnixUser, deadline: float | None
    ) -> dict[tuple[str, int], int]:
        """The exit codes of those whose text form may lack 128; none where this release's JSON has none."""
        ids = sorted({row.raw_id for row in rows if sacct.may_have_lost_128(row)})
        codes: dict[tuple[str, int], int] = {}
        for start in range(0, len(ids), JSON_CHUNK):
            argv = sacct.whole_exits(ids[start : start + JSON_CHUNK])
            completed = await self._calls.complete(
                reader, argv, env=sacct.ENVIRONMENT, deadline=deadline or self._calls.settings.accounting_s
            )
            if completed.code == 0:
                codes.update(sacct.read_whole_exits(completed.stdout))
        return codes


def in_order(users: Collection[UnixUser]) -> list[UnixUser]:
    return sorted(users, key=lambda user: (user.uid, user.name))


def merged(
    views: Mapping[UnixUser, QueueAnswer], at: datetime, took_s: float, *, complete: bool
) -> QueueSnapshot:
    """One look from what each user's agent shows of that user's own jobs.

    Two records for one id are doubtful to that user alone, who could also make them up for anybody's id.
    """
    return QueueSnapshot(
        at,
        took_s,
        jobs=each_once(job for view in views.values() for job in view.jobs),
        complete=complete and all(view.whole for view in views.values()),
        dropped=sum(view.tally.dropped for view in views.values()),
        whole=frozenset(reader.uid for reader, view in views.items() if view.whole),
    )


def each_once(jobs: Iterable[Observation]) -> tuple[Observation, ...]:
    """A user whose account was renamed is asked by both names."""
    return tuple({(job.uid, job.job_id): job for job in jobs}.values())
