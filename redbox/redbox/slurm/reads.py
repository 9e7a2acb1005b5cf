"""What is read of jobs: the queue as a whole, single jobs, and what the accounting remembers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial

from redbox.domain import UnixUser
from redbox.slurm import sacct, squeue, sstat
from redbox.slurm.calls import Calls
from redbox.slurm.folding import Folder, fold
from redbox.slurm.framing import Frame, Tally, decode, new_token
from redbox.slurm.inventory import Inventory
from redbox.slurm.refusals import words_of
from redbox.slurm.remembering import remember, with_whole_exits
from redbox.workload import History, Observation, Poll, StepUsage, WorkloadFault

LOOKOUTS_AT_ONCE = 8
SILENT_S, SLOWER = 2.0, 4  # how long, and how much longer than others, one may take who was silent before
JSON_CHUNK = 200  # ids in one call for whole exit codes: some 5 kB each

Lookout = tuple[UnixUser, tuple[str, ...]]
"""Who looks, and the uids of those whose jobs; none is all."""


class Reads:
    """Reads through the observer's agent; through the users' own where Slurm hides jobs from the observer."""

    def __init__(
        self,
        calls: Calls,
        inventory: Inventory,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._calls = calls
        self._inventory = inventory
        self._now = now
        self._monotonic = monotonic
        self._users: frozenset[UnixUser] = frozenset()
        self._patience_s: dict[UnixUser, float] = {}  # with those who did not answer when others did
        self._rows = squeue.RowReader()
        self._folder = Folder()
        self._can_glance = True  # until squeue says that it cannot
        self._history_fields: tuple[str, ...] | None = None

    # ------------------------------------------------------------------------------------------ the queue
    async def poll(self, users: Collection[UnixUser] | None, wanted: squeue.Wanted | None) -> Poll:
        at, started = self._now(), self._monotonic()
        tally = Tally()
        self._rows.begin()
        rows: list[squeue.QueueRow] = []
        private = await self._are_jobs_private()
        if users is not None:
            self._users = frozenset(users)
        faults = []
        answers = await self._look_out(self._lookouts(users, private=private))
        for frame, answer in answers:
            if isinstance(answer, WorkloadFault):
                faults.append(answer)  # who stops the own agent hides the own jobs, and nobody else's
            else:
                rows += self._rows.read(answer, frame, tally, wanted)
        if faults and len(faults) == len(answers):
            raise faults[0]
        jobs, doubtful = self._folder.fold(rows)
        complete = tally.complete and not faults and (not private or users is not None)
        return Poll(at, self._monotonic() - started, jobs, complete, tally.dropped, doubtful)

    async def _look_out(self, lookouts: Sequence[Lookout]) -> list[tuple[Frame, str | WorkloadFault]]:
        """Ask them side by side; who alone did not answer the last time has less time to do so."""
        slots = asyncio.Semaphore(LOOKOUTS_AT_ONCE)
        patience, silent = self._patience_s, set[UnixUser]()
        slowest_s: float | None = None

        async def ask(reader: UnixUser, asked: tuple[str, ...]) -> tuple[Frame, str | WorkloadFault]:
            nonlocal slowest_s
            frame = Frame.new(squeue.FIELDS)
            async with slots:
                started = self._monotonic()
                try:
                    text = await self._queue_of(reader, frame, asked, patience.get(reader))
                except WorkloadFault as fault:
                    silent.add(reader)
                    return frame, fault
                slowest_s = max(slowest_s or 0.0, self._monotonic() - started)
            return frame, text

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(*lookout)) for lookout in lookouts]
        known_s = None if slowest_s is None else max(SILENT_S, SLOWER * slowest_s)
        self._patience_s = {} if known_s is None else dict.fromkeys(silent, known_s)
        return [task.result() for task in tasks]

    async def _queue_of(
        self, reader: UnixUser, frame: Frame, asked: tuple[str, ...], deadline: float | None
    ) -> str:
        """The queue's text; of all users where squeue does not know one of those asked for."""
        argv = squeue.all_jobs(frame, asked)
        completed = await self._calls.complete(reader, argv, env=squeue.ENVIRONMENT, deadline=deadline)
        if completed.code == 0 and not completed.stderr:
            return decode(completed.stdout)
        return await self._calls.read(squeue.all_jobs(frame), user=reader, env=squeue.ENVIRONMENT)

    def _lookouts(self, users: Collection[UnixUser] | None, *, private: bool) -> list[Lookout]:
        if private and users is not None:
            return [(user, (str(user.uid),)) for user in sorted(users, key=lambda user: user.uid)]
        if users is None or not 0 < len(users) <= self._calls.settings.users_at_most:
            return [(self._calls.observer, ())]
        return [(self._calls.observer, tuple(sorted(str(user.uid) for user in users)))]

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
        raise WorkloadFault(f"squeue failed: {words}")

    async def find_live(self, job_ids: Collection[str]) -> tuple[Observation, ...]:
        """Single jobs; those that Slurm does not know are not among them."""
        readers = self._users if await self._are_jobs_private() else (self._calls.observer,)
        rows: list[squeue.QueueRow] = []
        for reader in readers:
            rows += await self.rows_of(reader, job_ids)
        return fold(rows)[0]

    async def rows_of(self, reader: UnixUser, job_ids: Collection[str]) -> list[squeue.QueueRow]:
        """The rows of these jobs, as this user may see them."""
        frame, tally = Frame.new(squeue.FIELDS), Tally()
        argv = squeue.single_jobs(frame, sorted(job_ids))
        completed = await self._calls.complete(reader, argv, env=squeue.ENVIRONMENT)
        if completed.code != 0:
            words = words_of(completed.stderr)
            if squeue.UNKNOWN_JOB in words:
                return []
            raise WorkloadFault(f"squeue failed: {words}")
        rows = list(squeue.read_rows(decode(completed.stdout), frame, tally))
        if not tally.complete:
            raise WorkloadFault("squeue's answer could not be read whole")
        return rows

    async def usage(self, user: UnixUser, job_ids: Collection[str]) -> tuple[StepUsage, ...]:
        """As measured by the slurmds: they tell only the jobs' own user."""
        return tuple(sstat.read_rows(await self._calls.read(sstat.of_jobs(sorted(job_ids)), user=user)))

    # ------------------------------------------------------------------------------------- the accounting
    async def history(self, job_ids: Collection[str]) -> History:
        ordered = sorted(job_ids)
        chunks = [ordered[start : start + sacct.CHUNK] for start in range(0, len(ordered), sacct.CHUNK)]
        return await self._history(
            [partial(sacct.of_jobs, job_ids=chunk) for chunk in chunks], await self._accountants()
        )

    async def history_of(self, user: UnixUser, since: datetime) -> History:
        return await self._history([partial(sacct.of_user, user=user.name, since=since)], [user])

    async def _history(
        self, questions: Sequence[Callable[[Collection[str], str], list[str]]], readers: Iterable[UnixUser]
    ) -> History:
        """All rows, with the exit codes that sacct's text has cut put right."""
        if not (await self._inventory.facts()).configuration.accounting:
            return History((), complete=True, available=False)
        fields, tally = await self._fields(), Tally()
        rows: list[sacct.AccountingRow] = []
        for user in readers:
            for question in questions:
                token = new_token()
                text = await self._ask(question(fields, token), user)
                rows += sacct.read_rows(text, fields, token, tally)
        rows = list(dict.fromkeys(rows))
        whole = with_whole_exits(rows, await self._whole_exits(rows))
        return History(remember(whole), complete=tally.complete)

    async def _accountants(self) -> Iterable[UnixUser]:
        """Who sees the rows: everybody, or each user only the own ones."""
        if not await self._inventory.is_history_private():
            return [self._calls.observer]
        return sorted(self._users, key=lambda user: user.uid)

    async def _ask(self, argv: list[str], user: UnixUser) -> str:
        deadline = self._calls.settings.accounting_s
        return await self._calls.read(argv, user=user, env=sacct.ENVIRONMENT, deadline=deadline)

    async def _fields(self) -> tuple[str, ...]:
        """Asked once: what this release of sacct knows."""
        if self._history_fields is None:
            fields = sacct.read_field_names(await self._calls.read(sacct.field_names()))
            if not set(fields) >= sacct.NEEDED:
                raise WorkloadFault(f"sacct lacks the fields {', '.join(sorted(sacct.NEEDED - set(fields)))}")
            self._history_fields = fields
        return self._history_fields

    async def _whole_exits(self, rows: Iterable[sacct.AccountingRow]) -> dict[tuple[str, int], int]:
        """The exit codes of those whose text form may lack 128; none where this release's JSON has none."""
        ids = sorted({row.raw_id for row in rows if sacct.may_have_lost_128(row)})
        codes: dict[tuple[str, int], int] = {}
        for start in range(0, len(ids), JSON_CHUNK):
            argv = sacct.whole_exits(ids[start : start + JSON_CHUNK])
            deadline = self._calls.settings.accounting_s
            completed = await self._calls.complete(
                self._calls.observer, argv, env=sacct.ENVIRONMENT, deadline=deadline
            )
            if completed.code == 0:
                codes.update(sacct.read_whole_exits(completed.stdout))
        return codes
