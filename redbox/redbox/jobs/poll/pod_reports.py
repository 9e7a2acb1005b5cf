"""The reports of pods' runners, followed from the start of each job to its end.

A poll says which pods to follow: those that run and are not settled, and those that Slurm shows as ended,
whose last report makes them final. Each user's are read by one round at a time, a few at once, so that a home
that hangs delays its own user alone; what failed comes last in the next round. A report is in the journal
before it is shown, and all that one part of a round has read is one change.

A settled pod costs nothing. The others are read once a second, and less often where a user's files are slow
or a report is long: rounds take at most a fifth of the time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import structlog

from redbox.core.clock import is_set_within, with_deadline
from redbox.core.domain import JobKey
from redbox.core.workload_manager import ReportPiece, ReportPosition, WorkloadManagerError
from redbox.jobs.background_tasks import BackgroundTasks
from redbox.jobs.context import Context, JobsComponent
from redbox.jobs.poll.node_addresses import NodeAddresses
from redbox.jobs.queue_snapshot import SnapshotIndex, SnapshotMatch
from redbox.jobs.record.pods import UNREADABLE, is_followed, with_line
from redbox.jobs.record.record import JobRecord, with_warning
from redbox_api.hostlists import expand

log = structlog.get_logger(__name__)

EVERY_S = 1.0
LONGEST_PAUSE_S = 15.0
ROUNDS_SHARE = 4  # a pause is so many times as long as the round before it
BYTES_PER_S = 32 * 1024  # of one pod, in the journal and in watches
USERS_BYTES_PER_S = 1024 * 1024  # of all pods of one user, who share the journal with others
NAMES_ADDRESS = b'"hostIP"'
READ_S = 6.0
GIVE_UP_S = 20.0  # after a job's end
READS_AT_ONCE = 8  # of one user, whose agent has other work
USERS_AT_ONCE = 64


@dataclass(slots=True)
class FollowedPod:
    """Where the reading of one pod's report stands."""

    position: ReportPosition | None = None
    addresses: tuple[str, ...] = ()
    """Of its node, once its report names one."""
    due: float = float("-inf")
    failed_at: float = float("-inf")


@dataclass(slots=True)
class FollowedUser:
    """The followed pods of one user."""

    pods: dict[JobKey, FollowedPod] = field(default_factory=dict)
    due: float = float("-inf")


class PodReports(JobsComponent):
    """Reads them through the workload manager."""

    def __init__(self, context: Context, group: asyncio.TaskGroup) -> None:
        super().__init__(context)
        self._users: defaultdict[int, FollowedUser] = defaultdict(FollowedUser)
        self._rounds = BackgroundTasks(group, at_once=USERS_AT_ONCE, of_one=1)
        self._group = group
        self._running: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._addresses = NodeAddresses(self._clock)

    async def expect(self, key: JobKey) -> None:
        """Read the report of a pod now, though it was settled: a container was added to it."""
        await self._store.change_one(key, lambda record: replace(record, report_settled=False))
        record = self._store.index.get(key)
        if record is not None:
            self._follow(record)

    def follow(self, record: JobRecord, _: SnapshotMatch, __: SnapshotIndex) -> None:
        """After each poll: begin with a pod that runs or has ended."""
        self._follow(record)

    def _follow(self, record: JobRecord) -> None:
        if not is_followed(record):
            return
        user = self._users[record.user.uid]
        is_new = record.key not in user.pods
        pod = user.pods.setdefault(record.key, FollowedPod())
        if is_new or (record.awaits_report and pod.failed_at == float("-inf")):
            pod.due = user.due = float("-inf")
        self._wanted.set()
        if self._running is None:  # the first pod
            self._running = self._group.create_task(self._run())

    async def _run(self) -> None:
        """Start rounds for ever, each user's when it is due."""
        while True:
            self._wanted.clear()
            for uid in [uid for uid, user in self._users.items() if not user.pods]:
                del self._users[uid]
            now = self._clock.monotonic()
            for uid, user in self._users.items():
                if user.due <= now:
                    user.due = now + EVERY_S
                    self._rounds.start(("pod reports", uid), self._round(user), of=uid)
            if self._users:
                next_due = min(user.due for user in self._users.values())
                await is_set_within(self._clock, next_due - self._clock.monotonic(), self._wanted)
            else:
                await self._wanted.wait()

    async def _round(self, user: FollowedUser) -> None:
        """Read what is due, those that have ended first, up to the first part in which a read failed."""
        began = self._clock.monotonic()
        try:
            due = self._due(user, began)
            for first in range(0, len(due), READS_AT_ONCE):
                if not await self._read_part(user, due[first : first + READS_AT_ONCE]):
                    break
        finally:
            now = self._clock.monotonic()
            pause = min(LONGEST_PAUSE_S, max(EVERY_S, ROUNDS_SHARE * (now - began)))
            ends = any(self._awaited(key) for key in user.pods)
            user.due = now + (EVERY_S if ends else pause)

    def _awaited(self, key: JobKey) -> bool:
        record = self._store.index.get(key)
        return record is not None and record.awaits_report

    def _due(self, user: FollowedUser, now: float) -> list[JobRecord]:
        """In the order of urgency; pods that need not be followed any longer are dropped."""
        records = []
        for key, pod in list(user.pods.items()):
            record = self._store.index.get(key)
            if record is None or not is_followed(record):
                del user.pods[key]
            elif pod.due <= now or record.awaits_report:
                records.append(record)
        return sorted(records, key=lambda r: (user.pods[r.key].failed_at, not r.awaits_report))

    async def _read_part(self, user: FollowedUser, records: Sequence[JobRecord]) -> bool:
        """Whether all were read; those that were are changed together."""
        pieces = await asyncio.gather(*(self._read(record, user.pods[record.key]) for record in records))
        read = {record.key: piece for record, piece in zip(records, pieces, strict=True)}
        ended = {record.key for record in records if record.awaits_report}
        kept = {key for key, piece in read.items() if piece is not None and not piece.line}

        def decide(record: JobRecord) -> JobRecord:
            kept.add(record.key)
            addresses = user.pods[record.key].addresses
            return self._after_read(record, read[record.key], addresses, had_ended=record.key in ended)

        await self._store.change_free(
            [r for r in records if r.key in ended or ((piece := read[r.key]) is not None and piece.line)],
            decide,
        )
        if any(self._is_last(record.key) for record in records if record.key not in ended):
            self._context.request_poll()  # Slurm shows the end of its job next, and the pod waits for that
        now = self._clock.monotonic()
        for key, piece in read.items():
            rate = min(BYTES_PER_S, USERS_BYTES_PER_S / len(user.pods))
            _note(user.pods[key], piece, now, rate, is_kept=key in kept)
        return all(piece is not None for piece in pieces)

    def _is_last(self, key: JobKey) -> bool:
        record = self._store.index.get(key)
        return record is not None and record.report_complete and not record.final

    async def _read(self, record: JobRecord, pod: FollowedPod) -> ReportPiece | None:
        """None: what the runner has reported is not known."""
        directory = record.status.working_directory or record.working_directory
        reading = self._workload.report(record.user, record.mark, directory, pod.position)
        try:
            piece = await with_deadline(self._clock, READ_S, reading)
        except (WorkloadManagerError, TimeoutError) as fault:
            log.debug("%s: %s", record.key, fault)
            return None
        if piece.unclear:
            return None
        if NAMES_ADDRESS in piece.line and not pod.addresses and (nodes := expand(record.status.nodes)):
            pod.addresses = await self._addresses.of(nodes[0])
        return piece

    def _after_read(
        self, record: JobRecord, piece: ReportPiece | None, addresses: Collection[str], *, had_ended: bool
    ) -> JobRecord:
        """A read that began before the end was seen is not the last one."""
        now = self._clock.now()
        if piece is not None and (had_ended or not record.awaits_report):
            return self._machine.with_report(record, piece.line, now, addresses)
        if piece is not None:
            return with_line(record, piece.line, addresses)
        since = record.ending_since
        if not record.awaits_report or since is None or (now - since).total_seconds() < GIVE_UP_S:
            return record
        return self._machine.without_more_reports(with_warning(record, UNREADABLE), now)


def _note(
    pod: FollowedPod, piece: ReportPiece | None, now: float, bytes_per_s: float, *, is_kept: bool
) -> None:
    if piece is None:
        pod.failed_at = now
        return
    pod.failed_at = float("-inf")
    if is_kept:
        pod.position = piece.position
    pod.due = now + max(EVERY_S / 2, len(piece.line) / bytes_per_s)
