"""A red-box, its journal and a simulated Slurm that tests drive step by step, and may kill at any step.

The event loop is run one iteration at a time. A crash abandons it where it stands: nothing is cancelled, no
`finally` runs, as after a kill -9; the next server is a new `JobService` on the same journal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from redbox.core.domain import Caller, Limits, Owner, Role, UnixUser
from redbox.jobs.record.marks import Marks
from redbox.jobs.recovery import RecoveryResult, recover, write
from redbox.jobs.service import JobService
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.journal import FILE_NAME, CommitRequest, Journal, OnCommitted
from redbox.jobs.store.sqlite import JournalBatch
from redbox.observability.job_audit import AuditEntry
from redbox_api.models import JobRequest
from tests.redbox.jobs.clock import SimulatedClock
from tests.redbox.jobs.fakes import SimulatedSlurm

T = TypeVar("T")
SECRET = bytes(range(32))
ALICE = UnixUser("alice", 2001)
BOB = UnixUser("bob", 2002)
SUBMIT = frozenset({Role.SUBMIT})
NO_LIMITS = Limits()
SCRIPT = "#!/bin/sh\ntrue\n"
_ABANDONED: list[object] = []  # kept, so that no destructor of a dead server's tasks runs anything


def caller(
    user: UnixUser = ALICE, namespace: str = "physics", uid: str = "uid-1", limits: Limits = NO_LIMITS
) -> Caller:
    """A service account that may submit."""
    owner = Owner("kube", namespace, "default", uid)
    return Caller(f"system:serviceaccount:{namespace}:default", owner, SUBMIT, user, limits)


def operator(cluster: str = "kube") -> Caller:
    owner = Owner(cluster, "redbox", "operator", "uid-operator")
    return Caller("system:serviceaccount:redbox:operator", owner, frozenset({Role.OPERATOR}))


def request(script: str = SCRIPT, **facts: Any) -> JobRequest:
    return JobRequest(batch=script, **facts)


class WatchedJournal(Journal):
    """Knows whether anything is still to be written or answered, and can lose what was asked last."""

    def __init__(self, directory: Path) -> None:
        self.asked = self.written = self.answered = 0
        self.losing = False  # power fails before the disk hears of it
        super().__init__(directory)

    @property
    def waiting(self) -> bool:
        return self.answered < self.asked and not self.losing

    def wait_for_disk(self) -> None:
        while self.written < self.asked and not self.losing:
            time.sleep(0.0001)

    def commit(self, batch: JournalBatch, answer: OnCommitted) -> None:
        if self.losing:
            return
        self.asked += 1

        def answered(fault: Any) -> None:
            self.answered += 1
            answer(fault)

        super().commit(batch, answered)

    def _commit(self, asked: list[CommitRequest]) -> None:
        super()._commit(asked)
        self.written += len(asked)


class World:
    """Everything, and the hand that moves it."""

    def __init__(
        self, directory: Path, prepare: Callable[[SimulatedSlurm], None] = lambda _: None, **settings: Any
    ) -> None:
        self.directory = directory
        self.settings = JobsSettings(**settings)
        self.clock = SimulatedClock()
        self.slurm = SimulatedSlurm(self.clock)
        prepare(self.slurm)  # before the first poll
        self.marks = Marks(SECRET, "hpc1")
        self.deeds: list[AuditEntry] = []
        self.start()

    # ---------------------------------------------------------------------------------------- servers

    def start(self) -> None:
        """A new server on the same journal."""
        self.loop = asyncio.new_event_loop()
        self.journal = WatchedJournal(self.directory)
        self.jobs = JobService(
            self.journal,
            self.slurm,
            self.marks,
            clock=self.clock,
            settings=self.settings,
            audit=self.hear,
        )
        self.run(self.jobs.__aenter__())

    def hear(self, deed: AuditEntry) -> None:
        self.deeds.append(deed)

    def crash(self) -> None:
        """kill -9: what was asked of the disk may still reach it, everything else ends here."""
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _ABANDONED.append(task)
        _ABANDONED.append((self.loop, self.jobs))
        self.journal.close()
        self.loop.close()  # three descriptors, and a machine of hypothesis has hundreds of crashes
        self.clock.forget_sleepers()

    def restart(self) -> None:
        self.crash()
        self.start()

    def stop(self) -> None:
        """An orderly end."""
        self.run(self.jobs.__aexit__())
        self.journal.close()
        self.loop.close()

    # ---------------------------------------------------------------------------------------- steps

    def step(self) -> None:
        """One iteration of the event loop, and all that it asked of the disk."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        self.journal.wait_for_disk()

    def settle(self) -> None:
        """Until nothing happens any more without time passing."""
        quiet = 0
        while quiet < 2:
            self.step()
            busy = bool(self.loop._ready) or self.journal.waiting  # type: ignore[attr-defined]
            quiet = 0 if busy else quiet + 1

    def advance(self, seconds: float) -> None:
        """Let time pass, from one thing that waits for it to the next."""
        end = self.clock.elapsed + seconds
        self.settle()
        while (waking := self.clock.next_waking()) is not None and waking <= end:
            self.clock.advance_to(waking)
            self.settle()
        self.clock.advance_to(end)
        self.settle()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self.loop.create_task(work)

    def run(self, work: Coroutine[Any, Any, T], patience: float = 1000.0) -> T:
        """Do this, letting time pass as far as it needs."""
        task = self.begin(work)
        limit = self.clock.elapsed + patience
        self.settle()
        while not task.done():
            waking = self.clock.next_waking()
            assert waking is not None, "it waits for something that never happens"
            assert waking <= limit, "it waits too long"
            self.clock.advance_to(waking)
            self.settle()
        return task.result()


def lose_and_recover(world: World) -> RecoveryResult:
    """The journal is deleted under running jobs, and rebuilt."""
    world.crash()
    for path in world.directory.glob(FILE_NAME + "*"):
        path.unlink()
    journal = Journal(world.directory)
    loop = world.loop = asyncio.new_event_loop()
    recovered = loop.run_until_complete(
        recover(world.slurm, world.marks, world.clock, world.settings, [ALICE])
    )
    loop.run_until_complete(write(journal, recovered, world.clock.now()))
    journal.close()
    loop.close()
    world.start()
    return recovered
