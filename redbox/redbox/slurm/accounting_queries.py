"""Queries for jobs in the accounting: their ends, and what they used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from redbox.core.domain import UnixUser
from redbox.core.workload_manager import AccountingSnapshot, PastUsage, WorkloadManagerError
from redbox.slurm.cluster_queries import ClusterQueries
from redbox.slurm.command_runner import USER_LIMIT, CommandRunner, OutputTooLong
from redbox.slurm.commands import ended_usage, sacct
from redbox.slurm.job_queries import JobQueries, in_order, known_ids, own_rows
from redbox.slurm.per_user_queries import PerUserQueries
from redbox.slurm.text.error_messages import is_unavailable, words_of
from redbox.slurm.text.fixed_columns import Columns
from redbox.slurm.text.record_format import ParseReport
from redbox.slurm.views.accounting_jobs import build_accounting_jobs, with_complete_exits
from redbox.slurm.views.past_usages import build_past_usages

JSON_CHUNK = 200  # ids in one call for complete exit codes: some 5 kB each

RowsCall = Callable[[Collection[str]], list[str]]
"""The argument list for these fields."""


class AccountingQueries:
    """Runs sacct as the observer, and as each user where slurmdbd hides jobs from the observer."""

    def __init__(self, commands: CommandRunner, cluster: ClusterQueries, queue: JobQueries) -> None:
        self._commands = commands
        self._cluster = cluster
        self._queue = queue
        self._users = PerUserQueries(commands.clock.monotonic)
        self._field_names: str | None = None  # as sacct lists them

    async def history(
        self, job_ids: Collection[str], *, users: Collection[UnixUser] | None = None
    ) -> AccountingSnapshot:
        """Of any age: so sacct -j finds them."""
        ordered = known_ids(job_ids)
        chunks = [ordered[start : start + sacct.CHUNK] for start in range(0, len(ordered), sacct.CHUNK)]
        calls = [partial(sacct.jobs_argv, job_ids=chunk) for chunk in chunks]
        if not await self._cluster.is_history_private():
            return await self._history(calls, [self._commands.observer], own=False)
        readers = in_order(self._queue.users if users is None else users)
        return await self._history(calls, readers, own=True)

    async def history_of(self, user: UnixUser, *, since: datetime) -> AccountingSnapshot:
        return await self._history([partial(sacct.user_argv, user=user.name, since=since)], [user], own=True)

    async def _history(
        self, calls: Sequence[RowsCall], readers: Collection[UnixUser], *, own: bool
    ) -> AccountingSnapshot:
        """All rows that the readers see; `own`: only each reader's own."""
        if not (await self._cluster.configuration()).accounting:
            return AccountingSnapshot((), complete=True, available=False)
        fields = await self._known_fields(sacct.FIELDS, sacct.NEEDED)

        async def query(
            reader: UnixUser, deadline: float | None
        ) -> tuple[Sequence[sacct.AccountingRow], bool]:
            deadline = deadline or self._commands.settings.accounting_s
            report = ParseReport()
            rows: list[sacct.AccountingRow] = []
            for call in calls:
                text = await self._commands.read(
                    call(fields), user=reader, env=sacct.ENVIRONMENT, deadline=deadline
                )
                rows += sacct.read_rows(text, fields, report)
            shown = own_rows(dict.fromkeys(rows), reader) if own else list(dict.fromkeys(rows))
            shown = without_contradictions(shown, report)
            texts = await self._texts_of(shown, reader, deadline, report)
            shown = [row.with_texts(texts[sacct.part_of(row)]) for row in shown]
            codes = await self._complete_exit_codes(shown, reader, deadline)
            return with_complete_exits(shown, codes), report.complete

        answers = await self._users.run(readers, query)
        complete = [reader for reader, (_, is_complete) in answers.items() if is_complete]
        return AccountingSnapshot(
            build_accounting_jobs(row for rows, _ in answers.values() for row in rows),
            complete=len(complete) == len(readers) > 0,
            whole=frozenset(reader.uid for reader in complete if own),
        )

    async def past_usage(self, user: UnixUser, job_ids: Collection[str]) -> tuple[PastUsage, ...] | None:
        """As the user, who sees own jobs whatever PrivateData is."""
        if not (await self._cluster.configuration()).accounting:
            return None
        await self._known_fields(ended_usage.FIELDS, ended_usage.NEEDED)
        report, deadline = ParseReport(), self._commands.settings.accounting_s
        text = await self._commands.read(
            ended_usage.jobs_argv(sorted(job_ids)), user=user, env=sacct.ENVIRONMENT, deadline=deadline
        )
        rows = [row for row in ended_usage.read_rows(text, report) if row.uid == user.uid]
        texts = await self._texts_of(rows, user, deadline, report)
        report.refuse_incomplete("sacct")
        return build_past_usages(replace(row, mark=texts[sacct.part_of(row)].mark) for row in rows)

    async def _known_fields(
        self, wanted: Sequence[str], needed: frozenset[str] = frozenset()
    ) -> tuple[str, ...]:
        """Those of the wanted fields that this release of sacct has; its list is read once."""
        if self._field_names is None:
            self._field_names = await self._commands.read(sacct.field_names_argv())
        fields = sacct.read_field_names(self._field_names, wanted)
        if missing := needed - set(fields):
            raise WorkloadManagerError(f"sacct lacks the fields {', '.join(sorted(missing))}")
        return fields

    async def _texts_of(
        self, rows: Iterable[sacct.AccountedRun], reader: UnixUser, deadline: float, report: ParseReport
    ) -> Mapping[sacct.JobPart, sacct.JobTexts]:
        """What users wrote of these rows' jobs; a row that the accounting has dropped since is counted."""
        fields = await self._known_fields(sacct.TEXTS)
        shown = sacct.representatives(rows)
        texts: dict[sacct.Run, sacct.JobTexts] = {}
        for width, chunk in sacct.TEXT_QUERIES:
            columns = sacct.text_columns(fields, width)
            whole = {run for run, found in texts.items() if found.whole}
            ids = sorted({sacct.id_of_one(row) for row in shown.values() if sacct.run_of(row) not in whole})
            for start in range(0, len(ids), chunk):
                texts |= await self._texts_in(columns, ids[start : start + chunk], reader, deadline, report)
        report.dropped += sum(sacct.run_of(row) not in texts for row in shown.values())
        return {part: texts.get(sacct.run_of(row), sacct.JobTexts()) for part, row in shown.items()}

    async def _texts_in(
        self, columns: Columns, ids: Sequence[str], reader: UnixUser, deadline: float, report: ParseReport
    ) -> dict[sacct.Run, sacct.JobTexts]:
        """In as many calls as it takes; of a job whose runs alone are too many, none."""
        argv = sacct.texts_argv(columns, ids)
        try:
            output = await self._commands.output(argv, user=reader, env=sacct.ENVIRONMENT, deadline=deadline)
        except OutputTooLong:
            if len(ids) == 1:
                return {}  # not counted: it has those of narrower columns, or is counted without any
            middle = len(ids) // 2
            first = await self._texts_in(columns, ids[:middle], reader, deadline, report)
            return first | await self._texts_in(columns, ids[middle:], reader, deadline, report)
        return dict(sacct.read_texts(output, columns, report))

    async def _complete_exit_codes(
        self, rows: Iterable[sacct.AccountingRow], reader: UnixUser, deadline: float
    ) -> dict[tuple[str, int], int]:
        """The exit codes whose text form may lack 128; empty where this release's JSON has none."""
        ids = sorted({sacct.id_of_one(row) for row in rows if sacct.may_have_lost_128(row)})
        codes: dict[tuple[str, int], int] = {}
        for start in range(0, len(ids), JSON_CHUNK):
            codes |= await self._exit_codes_of(ids[start : start + JSON_CHUNK], reader, deadline)
        return codes

    async def _exit_codes_of(
        self, ids: Sequence[str], reader: UnixUser, deadline: float
    ) -> dict[tuple[str, int], int]:
        """In as many calls as it takes: some jobs have paths and command lines of many kilobytes."""
        argv = sacct.exit_codes_argv(ids)
        try:
            completed = await self._commands.complete(
                reader, argv, env=sacct.ENVIRONMENT, deadline=deadline, of_user=USER_LIMIT
            )
        except OutputTooLong:
            if len(ids) == 1:
                raise
            middle = len(ids) // 2
            first = await self._exit_codes_of(ids[:middle], reader, deadline)
            return first | await self._exit_codes_of(ids[middle:], reader, deadline)
        if completed.code == 0:
            return sacct.read_exit_codes(completed.stdout)
        if is_unavailable(words := words_of(completed.stderr)):
            raise WorkloadManagerError(f"sacct failed: {words}")
        return {}  # this release has no JSON


def without_contradictions(
    rows: Sequence[sacct.AccountingRow], report: ParseReport
) -> list[sacct.AccountingRow]:
    """The rows of runs that have one: the accounting has no other, and of two neither is used."""
    times = Counter(map(sacct.run_of, rows))
    single = [row for row in rows if times[sacct.run_of(row)] == 1]
    report.dropped += len(rows) - len(single)
    return single
