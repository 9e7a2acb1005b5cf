"""Submits, cancels and log readers by the dozen, while red-box, slurmctld and the network are taken away.

Each caller does what a companion does: it sends its PUT again until it is answered, and reads its log from
where it stands until there is nothing more. What came of each key is compared in the end with what Slurm
and the file system say.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from redbox_api.client import RedboxClient
from redbox_api.errors import Busy, Conflict, NoSuchJob, Unreachable
from redbox_api.models import FINAL_PHASES, Job, Phase
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until
from tests.e2e.harness.accounting import SINCE
from tests.e2e.harness.redbox_jobs import PAUSE_S, Reader, new_key, script
from tests.e2e.harness.redbox_server import RedboxServer

USERS = ("alice", "bob")
SUBMITTERS = 2  # of each user
AWAY_S = 6.0  # a cable is cut for so long
SCRIPT = "for part in $(seq 1 20); do seq $part 1000; sleep 0.05; done"
OUTPUT = "".join(f"{number}\n" for part in range(1, 21) for number in range(part, 1001)).encode()


@dataclass
class Told:
    """What red-box told of one key."""

    key: str
    user: str
    cancelled: bool
    put: Job | None = None
    final: Job | None = None
    log: bytes = b""
    refusal: str = ""


@dataclass
class Storm:
    """One of them. `blowing` lasts as long as faults are made, and until every caller has its answer."""

    bed: Bed
    server: RedboxServer
    chance: random.Random
    done: list[Told] = field(default_factory=list)
    kills: int = 0
    unanswered: int = 0
    _ended: bool = False
    _may_submit: asyncio.Event = field(default_factory=asyncio.Event)
    _sending: int = 0

    @asynccontextmanager
    async def blowing(self) -> AsyncIterator[None]:
        self._may_submit.set()
        async with asyncio.TaskGroup() as callers:
            for user in USERS:
                for _ in range(SUBMITTERS):
                    callers.create_task(self._submitter(user))
            yield
            self._ended = True

    def summary(self) -> str:
        cancelled = sum(told.cancelled for told in self.done)
        jobs = sum(told.final is not None for told in self.done)
        read = sum(len(told.log) for told in self.done)
        return (
            f"{self.kills} kills, {len(self.done)} keys, {cancelled} of them cancelled, {jobs} jobs, "
            f"{self.unanswered} submits without an answer, {read} bytes of logs read"
        )

    # ------------------------------------------------------------------------------------ faults

    async def kill_redbox(self, *, serves: bool = True) -> None:
        """At a random moment; it is started again, and killed again before it serves, now and then."""
        await asyncio.sleep(self.chance.uniform(0, 2))
        await asyncio.to_thread(self.server.kill)
        self.kills += 1
        await asyncio.to_thread(self.server.launch)
        if serves and self.chance.random() < 0.8:
            await asyncio.to_thread(self.server.wait_until_ready)

    async def kill_slurmctld(self, save_state: Callable[[], None]) -> None:
        """Between submits: what it has not saved it forgets, and that is Slurm's own limit."""
        self._may_submit.clear()
        await asyncio.to_thread(wait_until, self._no_submit_is_under_way, 90, "a submit never ended")
        await asyncio.to_thread(save_state)
        await asyncio.to_thread(self.bed.host("ctl").kill, "slurmctld")
        self._may_submit.set()
        await self.kill_redbox(serves=False)
        await asyncio.to_thread(self.bed.slurms[0].up)
        await asyncio.to_thread(self.server.wait_until_ready)

    async def cut_cable(self, host: Host) -> None:
        await asyncio.to_thread(host.link, up=False)
        cut_until = asyncio.get_running_loop().time() + AWAY_S
        await self.kill_redbox(serves=False)
        await asyncio.sleep(max(0.0, cut_until - asyncio.get_running_loop().time()))
        await asyncio.to_thread(host.link, up=True)
        await asyncio.to_thread(self.server.wait_until_ready)

    def _no_submit_is_under_way(self) -> bool:
        sbatch_runs = self.server.login.run("pgrep", "-x", "sbatch", check=False).returncode == 0
        return not self._sending and not sbatch_runs

    # ------------------------------------------------------------------------------------ callers

    async def _submitter(self, user: str) -> None:
        async with self.server.client_of(user) as client, asyncio.TaskGroup() as jobs:
            while not self._ended:
                told = Told(new_key(), user, cancelled=self.chance.random() < 0.25)
                self.done.append(told)
                if told.cancelled and self.chance.random() < 0.3:
                    await self._cancel(client, told)
                await self._put(client, told)
                if told.put is not None:
                    jobs.create_task(self._follow(client, told))
                await asyncio.sleep(self.chance.uniform(0, 2))

    async def _put(self, client: RedboxClient, told: Told) -> None:
        request = script(SCRIPT, name=told.key, resources={"time": "5", "memPerNode": "50M"})
        while True:
            await self._may_submit.wait()
            self._sending += 1
            try:
                told.put = await client.put_job(told.key, request)
            except Conflict as refused:
                told.refusal = refused.problem.detail
            except (Busy, Unreachable):
                self.unanswered += 1
                await asyncio.sleep(PAUSE_S)
                continue
            finally:
                self._sending -= 1
            return

    async def _cancel(self, client: RedboxClient, told: Told) -> None:
        while True:
            try:
                await client.cancel_job(told.key)
            except NoSuchJob:
                return
            except (Busy, Unreachable):
                await asyncio.sleep(PAUSE_S)
            else:
                return

    async def _follow(self, client: RedboxClient, told: Told) -> None:
        reader = Reader(client, told.key)
        async with asyncio.TaskGroup() as both:
            reading = both.create_task(reader.whole())
            if told.cancelled:
                await asyncio.sleep(self.chance.uniform(0, 3))
                await self._cancel(client, told)
            told.final = await self._final(client, told)
        told.log = reading.result()

    async def _final(self, client: RedboxClient, told: Told) -> Job:
        while True:
            try:
                job = await client.get_job(told.key)
            except (Busy, Unreachable):
                job = None
            if job is not None and job.phase in FINAL_PHASES:
                return job
            await asyncio.sleep(PAUSE_S)

    # ------------------------------------------------------------------------------------ the reckoning

    async def faults(self) -> list[str]:
        """Each way in which what was told is not what is."""
        slurm = await asyncio.to_thread(self._in_slurm)
        return [fault for told in self.done for fault in self._faults_of(told, slurm.get(told.key, set()))]

    def _in_slurm(self) -> dict[str, set[str]]:
        """The ids that each key has as a job's name, in the queue and in the accounting."""
        login = self.server.login
        live = login.run("squeue", "-a", "-h", "-t", "all", "-o", "%j|%A").stdout
        every = ("sacct", "-a", "-X", "-D", "-n", "-P", "-o", "JobName,JobIDRaw")
        past = login.run(*every, SINCE).stdout
        told = ",".join(str(told.final.job_id) for told in self.done if told.final and told.final.job_id)
        asked = login.run(*every, "-j", told).stdout  # a job that was held to its end is told only so
        found: dict[str, set[str]] = {}
        for line in (live + past + asked).splitlines():
            name, _, job_id = line.partition("|")
            found.setdefault(name, set()).add(job_id)
        return found

    def _faults_of(self, told: Told, ids: set[str]) -> list[str]:
        name = f"{told.user}'s {told.key}"
        if told.put is None:
            refused = "deleted before" in told.refusal and told.cancelled
            return [f"{name}: refused ({told.refusal}), with jobs {ids}"] * (bool(ids) or not refused)
        faults = []
        if told.final is None or ids != {told.final.job_id}:
            faults.append(f"{name}: jobs {ids}, told {told.final}")
        elif told.final.phase not in self._ends(told):
            faults.append(f"{name}: ended as {told.final}")
        if told.log != self._file(told) or not OUTPUT.startswith(told.log):
            faults.append(f"{name}: read {len(told.log)} bytes, the file has {len(self._file(told))}")
        if told.final and told.final.phase is Phase.SUCCEEDED and told.log != OUTPUT:
            faults.append(f"{name}: read {len(told.log)} bytes of {len(OUTPUT)}")
        return faults

    @staticmethod
    def _ends(told: Told) -> set[Phase]:
        return {Phase.SUCCEEDED, Phase.CANCELLED} if told.cancelled else {Phase.SUCCEEDED}

    def _file(self, told: Told) -> bytes:
        """Under /home, as the machine itself sees it; a job that was cancelled while it waited has none."""
        path = (told.final and told.final.logs.stdout) or ""
        home = self.bed.places.home(self.server.login.spec.cluster)
        file = home / path.removeprefix("/home/")
        return file.read_bytes() if path and file.exists() else b""
