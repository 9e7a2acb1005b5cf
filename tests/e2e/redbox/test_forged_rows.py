"""What alice writes into her jobs changes nothing that red-box reads of bob's, whatever it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from redbox.agents.pool import AgentPool
from redbox.core.observations import Observation
from redbox.slurm.slurm_manager import SlurmManager
from redbox.slurm.text.states import has_ended
from redbox_bed.hosts.host import Host
from tests import nightly
from tests.e2e.harness.argument_reader import reading_arguments
from tests.e2e.harness.hostile_text import hostile_values
from tests.e2e.harness.login_node import ALICE, BOB, CAROL, HostTransport
from tests.e2e.harness.slurm_submits import PATIENCE_S, Submitted, submit

STARTS = "/home/bob/forged-rows-starts"
HET = "#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\n"
FREE_TEXT = """
submit() { sbatch --parsable -H "$@"; }
submit --job-name="$0" --comment="$0" -D "/tmp/$0" -o "/tmp/$0" -e "/tmp/$0" --export="NONE,$0=$0" \\
    --mail-user="$0" --wrap "$0" || {
    for option in --job-name= --comment= --chdir=/tmp/ --output=/tmp/ --error=/tmp/ --mail-user= --export=; do
        submit --wrap true "$option$0"
    done
    submit --wrap "$0"
}
"""
"""All at once, or one by one where Slurm refuses one of them: names of more than a kilobyte, for example."""
VALIDATED = ("account", "constraint", "dependency", "gres", "licenses")
"""What Slurm compares with names that it has: it may refuse, and what it does not refuse is held."""
VALUES = nightly.count("FORGED_VALUES", 60, 200)
LOOKS = 12


class Jobs:
    """Bob's jobs, one of each kind, and what red-box reads of them."""

    def __init__(self, manager: SlurmManager, jobs: list[Submitted]) -> None:
        self.manager = manager
        self.jobs = jobs
        self.ids = [job.id for job in jobs]

    @classmethod
    async def of_bob(cls, manager: SlurmManager, login: Host) -> Jobs:
        login.run("rm", "-f", STARTS)
        script = f"#!/bin/sh\necho started >>{STARTS}\n"
        running = await submit(manager, BOB, batch=f"{script}exec sleep 600\n")
        ended = await submit(manager, BOB, batch=f"{script}exit 7\n")
        held = [
            await submit(manager, BOB, batch=f"{script}exit 0\n", hold=True),
            await submit(manager, BOB, batch=f"{script}exit 0\n", hold=True, array="0-3"),
            await submit(manager, BOB, batch=f"#!/bin/sh\n{HET}exit 0\n", hold=True),
        ]
        await running.until(lambda job: job.state == "RUNNING")
        await ended.ended()
        jobs = cls(manager, [*held, running, ended])
        async with asyncio.timeout(PATIENCE_S):
            while True:
                shown = {job.state for job in await jobs.history()}
                if shown == {"FAILED", "PENDING", "RUNNING"}:
                    return jobs
                await asyncio.sleep(0.2)

    async def queue(self) -> tuple[Observation, ...]:
        poll = await self.manager.poll(users=[ALICE, BOB])
        assert (poll.complete, poll.ambiguous) == (True, frozenset())
        return self.of_these(poll.jobs)

    async def history(self, others: list[str] | None = None) -> tuple[Observation, ...]:
        """Of these jobs, where they are queried with others."""
        found = await self.manager.history([*self.ids, *(others or ())])
        assert found.complete
        return self.of_these(found.jobs)

    def of_these(self, jobs: Iterable[Observation]) -> tuple[Observation, ...]:
        """By their ids, and what else is shown as bob's since."""
        first = min(map(int, self.ids))
        shown = (job for job in jobs if job.job_id in self.ids or is_later_of_bob(job, first))
        return tuple(sorted(shown, key=lambda job: (int(job.job_id), job.uid)))


def is_later_of_bob(job: Observation, first: int) -> bool:
    return job.uid == BOB.uid and int(job.job_id) > first


@pytest.fixture
async def manager(login: Host) -> AsyncIterator[SlurmManager]:
    async with AgentPool(HostTransport(login)) as pool:
        yield SlurmManager(pool, observer=CAROL)
    for user in ("alice", "bob"):
        login.run("scancel", f"--user={user}")


async def test_nothing_that_alice_writes_changes_a_row_of_bobs(manager: SlurmManager, login: Host) -> None:
    bobs = await Jobs.of_bob(manager, login)
    target = bobs.jobs[0]
    queue, history = await bobs.queue(), await bobs.history()
    assert sorted(job.state for job in queue) == ["FAILED", "PENDING", "PENDING", "PENDING", "RUNNING"]
    values = hostile_values(VALUES, job=target.id, uid=BOB.uid, mark=target.submission.mark)
    own = login.run("sbatch", "--parsable", "-H", "--wrap", "true", user="alice").stdout.strip()
    mark = target.submission.mark
    with reading_arguments(login, "alice", own=own, job=target.id, uid=BOB.uid, mark=mark) as reading:
        alices = submit_each(login, FREE_TEXT, values)
        assert len(alices) > len(values)
        for option in VALIDATED:
            alices += submit_each(login, f'sbatch --parsable -H --wrap true --{option}="$0"', values)
        for _ in range(LOOKS):
            assert await bobs.queue() == queue
            assert await bobs.history(alices) == history
        login.run("scancel", "--user=alice")
        await ended_in_the_accounting(manager, alices)
        assert await bobs.queue() == queue
        assert await bobs.history(alices) == history
    assert set(reading.seen) == {"squeue hidden", "sacct hidden"}
    assert login.read(STARTS) == b"started\n" * 2


def submit_each(login: Host, command: str, values: list[bytes]) -> list[str]:
    """The ids of the jobs that Slurm accepts of these, each value being $0 of the command."""
    argv = ("xargs", "-0", "-n1", "-P8", "sh", "-c", f"{command}\n:")  # xargs ends where one is 255
    done = login.run(*argv, user="alice", stdin=b"\0".join(values) + b"\0", check=False)
    return done.stdout.split()


async def ended_in_the_accounting(manager: SlurmManager, job_ids: list[str]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await manager.history(job_ids)
            if found.complete and all(has_ended(job.state) for job in found.jobs):
                break
            await asyncio.sleep(0.5)
    assert {job.job_id for job in found.jobs} == set(job_ids)
    assert {job.uid for job in found.jobs} == {ALICE.uid}
