"""Queries for jobs in the queue: all of them, single ones, when they start, and what running ones use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from redbox.core.domain import UnixUser
from redbox.core.observations import Observation
from redbox.core.workload_manager import FoundJobs, JobHandle, QueueSnapshot, StepUsage, WorkloadManagerError
from redbox.slurm.cluster_queries import ClusterQueries
from redbox.slurm.command_runner import CommandRunner
from redbox.slurm.commands import squeue, sstat
from redbox.slurm.per_user_queries import PerUserQueries
from redbox.slurm.text.array_expressions import are_more
from redbox.slurm.text.error_messages import words_of
from redbox.slurm.text.job_row import JobRow
from redbox.slurm.text.record_format import ParseReport, RecordFormat, decode
from redbox.slurm.text.values import read_number
from redbox.slurm.views.expected_start import build_expected_start
from redbox.slurm.views.queue_jobs import QueueJobBuilder, build_queue_jobs
from redbox_api.models import ExpectedStart

Row = TypeVar("Row", bound=JobRow)
MOST_TASKS = 1_000_000  # of one user; each one that ended is an object of 200 bytes
LARGEST_ID = 2**31 - 1  # of what squeue takes before 26.05; a federation of 32 clusters has larger ones
LONGEST_TEXTS = 256 * 1024  # of a job: a path has 4096 bytes, a list of thousands of nodes some 10,000


class JobQueries:
    """Runs queries as the observer, and as each user where Slurm hides jobs from the observer.

    A user controls what the user's agent answers: only that user's own jobs are accepted from it.
    """

    def __init__(self, commands: CommandRunner, cluster: ClusterQueries) -> None:
        self._commands = commands
        self._cluster = cluster
        self._clock = commands.clock
        self.users: frozenset[UnixUser] = frozenset()  # of the last poll
        self._polls, self._lookups = (PerUserQueries(commands.clock.monotonic) for _ in range(2))
        self._rows = squeue.RowReader()
        self._builders: dict[UnixUser, QueueJobBuilder] = {}
        self._has_job_states_only = True  # until squeue rejects the option

    # ------------------------------------------------------------------------------------------ the queue
    async def poll(
        self, *, users: Collection[UnixUser] | None = None, wanted: squeue.RecordFilter | None = None
    ) -> QueueSnapshot:
        """Records that `wanted` rejects by id and comment are never parsed."""
        at, started = self._clock.now(), self._clock.monotonic()
        self._rows.start_poll()
        private, boot_time = await self._cluster.are_jobs_private(), await self._cluster.recent_boot_time()
        if users is not None:
            self.users = frozenset(users)
        own = private and users is not None
        readers = in_order(self.users) if own else [self._commands.observer]
        self._builders = {reader: self._builders.get(reader) or QueueJobBuilder() for reader in readers}

        async def query(reader: UnixUser, deadline: float | None) -> QueueSnapshot:
            record_format, report = RecordFormat.new(squeue.FIELDS), ParseReport()
            uids = (str(reader.uid),) if own else self._uids_to_list(users)
            text = await self._queue_text(reader, record_format, uids, deadline)
            rows = self._rows.read(text, record_format, report, wanted)
            shown = own_rows(rows, reader) if own else list(rows)
            jobs, contradictory = self._builders[reader].build(shown)
            took_s = self._clock.monotonic() - started
            return QueueSnapshot(at, took_s, jobs, report.complete, report.dropped, contradictory)

        answers = await self._polls.run(readers, query)
        if own:
            took_s = self._clock.monotonic() - started
            merged = merge_answers(answers, at, took_s, complete=len(answers) == len(readers))
            return replace(merged, boot_time=boot_time)
        answer = answers[self._commands.observer]
        return replace(answer, complete=answer.complete and not private, boot_time=boot_time)

    async def _queue_text(
        self, reader: UnixUser, record_format: RecordFormat, uids: tuple[str, ...], deadline: float | None
    ) -> str:
        """The output of squeue; of all users where squeue does not know one of these uids."""
        argv, env = squeue.all_jobs_argv(uids), squeue.environment(record_format)
        completed = await self._commands.complete(reader, argv, env=env, deadline=deadline)
        if completed.code == 0 and not completed.stderr:
            return decode(completed.stdout)
        return await self._commands.read(squeue.all_jobs_argv(), user=reader, env=env)

    def _uids_to_list(self, users: Collection[UnixUser] | None) -> tuple[str, ...]:
        """The uids whose jobs squeue lists; empty for all users."""
        if users is None or not 0 < len(users) <= self._commands.settings.users_at_most:
            return ()
        return tuple(sorted(str(user.uid) for user in users))

    async def probe(self, job_ids: Collection[str]) -> int | None:
        """None where squeue lacks the option (before 23.11), or where Slurm hides jobs from the observer."""
        if not self._has_job_states_only or await self._cluster.are_jobs_private():
            return None
        argv = squeue.states_argv()
        completed = await self._commands.complete(self._commands.observer, argv, env=squeue.ENVIRONMENT)
        if completed.code == 0:
            return squeue.fingerprint(decode(completed.stdout), job_ids)
        words = words_of(completed.stderr)
        if squeue.UNKNOWN_OPTION in words:
            self._has_job_states_only = False
            return None
        raise WorkloadManagerError(f"squeue failed: {words}")

    async def find_live(
        self, job_ids: Collection[str], *, users: Collection[UnixUser] | None = None
    ) -> FoundJobs:
        """Single jobs; ids that Slurm does not know are left out."""
        job_ids = known_ids(job_ids)
        if not await self._cluster.are_jobs_private():
            rows = await self.rows_of(self._commands.observer, job_ids)
            return FoundJobs(build_queue_jobs(rows)[0], complete=True)

        async def query(reader: UnixUser, deadline: float | None) -> tuple[Observation, ...]:
            rows = await self.rows_of(reader, job_ids, deadline)
            return build_queue_jobs(own_rows(rows, reader))[0]

        readers = in_order(self.users if users is None else users)
        found = await self._lookups.run(readers, query)
        return FoundJobs(
            unique(job for jobs in found.values() for job in jobs),
            complete=len(found) == len(readers) > 0,
            whole=frozenset(reader.uid for reader in found),
        )

    async def rows_of(
        self, reader: UnixUser, job_ids: Collection[str], deadline: float | None = None
    ) -> list[squeue.QueueRow]:
        """The rows of these jobs, as this user may see them; raises if any call fails."""
        ordered = sorted(job_ids)
        rows: list[squeue.QueueRow] = []
        for start in range(0, len(ordered), squeue.CHUNK):
            rows += await self._rows_of_chunk(reader, ordered[start : start + squeue.CHUNK], deadline)
        return rows

    async def _rows_of_chunk(
        self, reader: UnixUser, job_ids: Sequence[str], deadline: float | None
    ) -> list[squeue.QueueRow]:
        record_format, report = RecordFormat.new(squeue.FIELDS), ParseReport()
        text = await self._text_of(reader, job_ids, record_format, deadline)
        rows = list(squeue.read_rows(text, record_format, report))
        report.refuse_incomplete("squeue")
        return rows

    async def expected_start(self, handle: JobHandle) -> ExpectedStart | None:
        """As the job's user, bound to id and mark. It costs no scheduling, which goes on by itself."""
        record_format, report = RecordFormat.new(squeue.START_FIELDS), ParseReport()
        text = await self._text_of(handle.user, [handle.job_id], record_format)
        rows = list(squeue.read_start_rows(text, record_format, report))
        report.refuse_incomplete("squeue")
        is_same = bool(rows) and is_same_job(handle, [row.job for row in rows])
        return build_expected_start(rows) if is_same else None

    async def _text_of(
        self,
        reader: UnixUser,
        job_ids: Collection[str],
        record_format: RecordFormat,
        deadline: float | None = None,
    ) -> str:
        """The output of squeue for these jobs; empty where Slurm knows none of them."""
        argv, env = squeue.single_jobs_argv(job_ids), squeue.environment(record_format)
        completed = await self._commands.complete(reader, argv, env=env, deadline=deadline)
        if completed.code == 0:
            return decode(completed.stdout)
        words = words_of(completed.stderr)
        if squeue.UNKNOWN_JOB in words:
            return ""
        raise WorkloadManagerError(f"squeue failed: {words}")

    async def usage(self, user: UnixUser, jobs: Collection[JobHandle]) -> tuple[StepUsage, ...]:
        """As measured by the slurmds, which answer only the jobs' own user; sstat names tasks by own ids.

        Of ids that Slurm has given to other jobs since the last poll nothing is shown.
        """
        ids = sorted(job.job_id for job in jobs)
        used = list(sstat.read_usage(await self._commands.read(sstat.usage_argv(ids), user=user)))
        parts = defaultdict(list)
        for row in await self.rows_of(user, ids) if used else ():
            parts[row.leader].append(row)
        same = [rows for job in jobs if (rows := parts[job.job_id]) and is_same_job(job, rows)]
        names = {row.job_id: squeue.name_of_task(row) or row.job_id for rows in same for row in rows}
        return tuple(replace(step, job_id=names[step.job_id]) for step in used if step.job_id in names)


def is_same_job(job: JobHandle, rows: Sequence[squeue.QueueRow]) -> bool:
    """Every part is the user's, and the row of the job's own id carries the mark."""
    identity = next((row for row in rows if row.job_id == job.job_id), rows[0])
    return identity.comment == job.mark and all(row.uid == job.user.uid for row in rows)


def known_ids(job_ids: Collection[str]) -> list[str]:
    """Those that Slurm can know: with one that it cannot, its commands refuse the whole list.

    A job's id is first what its user's agent says that sbatch has printed.
    """
    return sorted(job_id for job_id in job_ids if 0 < (read_number(job_id) or 0) <= LARGEST_ID)


def own_rows(rows: Iterable[Row], reader: UnixUser) -> list[Row]:
    """The reader's; raises where they stand for more tasks than anyone has: `36_[0-4000000]` is one row.

    Also where a row has longer texts than Slurm keeps: it is in the journal and in lists for all.
    """
    own = [row for row in rows if row.uid == reader.uid]
    if any(texts_of(row) > LONGEST_TEXTS for row in own):
        raise WorkloadManagerError(f"{reader.name}'s jobs have longer texts than Slurm keeps")
    if are_more((row.array_task for row in own), MOST_TASKS):
        raise WorkloadManagerError(f"{reader.name}'s jobs have more than {MOST_TASKS} tasks")
    return own


def texts_of(row: JobRow) -> int:
    """The length of all but the expression of an array's tasks, which are counted."""
    words = (row.state, row.reason, row.partition, row.account, row.qos, row.user, row.name, row.nodes)
    return sum(len(text or "") for text in (*words, row.stdout, row.stderr, row.working_directory))


def in_order(users: Collection[UnixUser]) -> list[UnixUser]:
    return sorted(users, key=lambda user: (user.uid, user.name))


def merge_answers(
    answers: Mapping[UnixUser, QueueSnapshot], at: datetime, took_s: float, *, complete: bool
) -> QueueSnapshot:
    """One snapshot of each user's own jobs.

    Two different records for one id do not make that id ambiguous in the snapshot: a user could make them up
    for anybody's id.
    """
    whole = [reader.uid for reader, answer in answers.items() if answer.complete and not answer.ambiguous]
    return QueueSnapshot(
        at,
        took_s,
        jobs=unique(job for answer in answers.values() for job in answer.jobs),
        complete=complete and len(whole) == len(answers),
        dropped=sum(answer.dropped for answer in answers.values()),
        whole=frozenset(whole),
    )


def unique(jobs: Iterable[Observation]) -> tuple[Observation, ...]:
    """A user whose account was renamed is read under both names."""
    return tuple({(job.uid, job.job_id): job for job in jobs}.values())
