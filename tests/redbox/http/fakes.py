"""A Slurm, a host and a readiness under the control of a test."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import uvicorn

from redbox.callers.connection_limits import ConnectionLimiter
from redbox.callers.unix_accounts import UnixAccount
from redbox.core.clock import SystemClock
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import Submission, SubmitOutcome, SubmitRejected
from redbox.http.services import Readiness
from redbox.server.listeners import Listener
from redbox.slurm.errors import RequestRefused
from redbox.slurm.text.batch_script import encode_script
from tests.redbox.callers.fakes import Accounts
from tests.redbox.jobs.clock import SimulatedClock
from tests.redbox.jobs.fakes import SimulatedSlurm

SCRIPT = "#!/bin/sh\ntrue\n"


class RunningClock(SimulatedClock):
    """The simulated Slurm's clock, where time passes by itself."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @elapsed.setter
    def elapsed(self, value: float) -> None:
        """This clock cannot be set."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class AdvancedClock(SystemClock):
    """Whose wall time a test advances, so that tokens expire."""

    ahead_s = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead_s)


class StrictSlurm(SimulatedSlurm):
    """Refuses what the real one's front refuses before sbatch is asked."""

    async def submit(self, user: UnixUser, submission: Submission) -> SubmitOutcome:
        try:
            encode_script(SCRIPT if submission.request.batch is None else submission.request.batch)
        except RequestRefused as refused:
            return SubmitRejected(refused.detail)
        return await super().submit(user, submission)


class Host(Accounts):
    """Has alice and bob; the account that runs the tests is alice."""

    def account_of(self, uid: int) -> UnixAccount | None:
        return self.account("alice") if uid == os.geteuid() else super().account_of(uid)


@dataclass
class Ready(Readiness):
    """Says of itself what a test wants."""

    reason: str | None = None

    def unready(self) -> str | None:
        return self.reason

    def warnings(self) -> list[str]:
        return ["the keys are old"]


class SoundedListener(Listener):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, opened: socket.socket, connections: ConnectionLimiter) -> None:
        super().__init__(config, opened, connections)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


async def same_job(*_: object) -> None:
    """No id was given to another job since the last poll."""


async def stand_in_for_srun(
    user: UnixUser, job_id: str, node: str, name: str, program: Sequence[str]
) -> list[str]:
    """The program as it would run on the node, on this host."""
    del user, job_id, node, name
    return list(program)
