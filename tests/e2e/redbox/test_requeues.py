"""The log of a job that Slurm runs again, where Slurm shows a run long before its output is opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from redbox_api.client import RedboxClient
from redbox_api.models import Job
from redbox_bed.bed import Bed
from tests.e2e.harness.redbox_jobs import PATIENCE_S, Reader, ended, started, submit, until
from tests.e2e.harness.redbox_server import RedboxServer, running
from tests.e2e.harness.slurm_settings import configured

PROLOG = "/usr/local/sbin/slow-prolog"
LINES = ("echo run $SLURM_RESTART_COUNT", '[ "$SLURM_RESTART_COUNT" ] || exec sleep 600')
BOTH = b"run\nrun 1\n"


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    """A red-box whose Slurm lets each job wait for its prolog, and says that it runs."""
    for name in bed.plan.clusters[0].hosts:
        bed.host(name).write(PROLOG, b"#!/bin/sh\nexec sleep 4\n", mode=0o755)
    with configured(bed, f"Prolog={PROLOG}"), running(bed) as server:
        yield server


@asynccontextmanager
async def reading(reader: Reader) -> AsyncIterator[None]:
    """It is read by somebody, to its end."""
    async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as group:
        task = group.create_task(reader.whole())
        try:
            yield
        except BaseException:
            task.cancel()
            raise


async def requeued(server: RedboxServer, alice: RedboxClient, key: str) -> Callable[[], None]:
    """It waits; Slurm would let it do so for two minutes: what is returned has it begin soon."""
    await alice.act_on_job(key, "requeue")
    job = await until(alice, key, lambda job: job.reason == "BeginTime")
    return lambda: begins(server, job)


def begins(server: RedboxServer, job: Job, task: str = "") -> None:
    """A job that begins in the second in which its run before was ended is refused by its node."""
    job_id = f"JobId={job.job_id}{task}"
    server.login.run("scontrol", "update", job_id, "StartTime=now+3", user="alice")


def grows_old(server: RedboxServer, job: Job) -> None:
    """As old as a file is when Slurm has let the job wait as long as it does."""
    server.login.run("touch", "-d", "5 minutes ago", job.logs.stdout or "", user="alice")


@pytest.mark.parametrize(("options", "in_file"), [([], b"run 1\n"), (["--open-mode=append"], BOTH)])
async def test_a_run_that_is_shown_before_it_writes_does_not_bring_the_one_before_again(
    server: RedboxServer, alice: RedboxClient, options: list[str], in_file: bytes
) -> None:
    key = await submit(alice, *LINES, options=options)
    reader = Reader(alice, key)
    async with reading(reader):
        await reader.until(b"run\n")
        (await requeued(server, alice, key))()
    assert bytes(reader.copied) == BOTH
    assert bytes(reader.content) == in_file


@pytest.mark.nightly(options=["--open-mode=append"])
@pytest.mark.parametrize("options", [[], ["--open-mode=append"]])
async def test_a_red_box_that_starts_while_the_job_waits_knows_whose_file_it_is(
    server: RedboxServer, alice: RedboxClient, options: list[str]
) -> None:
    key = await submit(alice, *LINES, options=options)
    reader = Reader(alice, key)
    async with reading(reader):
        await reader.until(b"run\n")
        begin = await requeued(server, alice, key)
        grows_old(server, await alice.get_job(key))
        server.kill()
        server.start()
        begin()
    assert bytes(reader.copied) == BOTH


@pytest.mark.nightly(restarted=False)
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_job_that_is_cancelled_before_its_next_run_has_its_log_once(
    server: RedboxServer, alice: RedboxClient, *, restarted: bool
) -> None:
    key = await submit(alice, *LINES)
    reader = Reader(alice, key)
    async with reading(reader):
        await reader.until(b"run\n")
        await requeued(server, alice, key)
        grows_old(server, await alice.get_job(key))
        if restarted:
            server.kill()
            server.start()
        await alice.cancel_job(key)
    assert bytes(reader.copied) == b"run\n"


async def test_a_job_that_slurm_holds_after_a_requeue_has_its_log_once(
    server: RedboxServer, alice: RedboxClient
) -> None:
    key = await submit(alice, *LINES)
    reader = Reader(alice, key)
    async with reading(reader):
        await reader.until(b"run\n")
        job = await started(alice, key)
        server.login.run("scontrol", "requeuehold", "State=SpecialExit", job.job_id or "", user="root")
        held = await until(alice, key, lambda job: job.state == "SPECIAL_EXIT")
        server.login.run("scontrol", "release", held.job_id or "", user="root")
        await until(alice, key, lambda job: job.state != "SPECIAL_EXIT")
        begins(server, held)
    assert bytes(reader.copied) == BOTH


async def test_a_task_that_is_requeued_is_read_anew_and_no_other(
    server: RedboxServer, alice: RedboxClient
) -> None:
    lasts = "[ $SLURM_ARRAY_TASK_ID != 2 ] || exec sleep 600"
    key = await submit(alice, "echo begun", lasts, array="0-2")
    readers = [Reader(alice, key, task=index) for index in range(2)]
    job = await until(alice, key, lambda job: bool(job.array and job.array.succeeded == len(readers)))
    assert [await reader.whole() for reader in readers] == [b"begun\n"] * 2
    server.login.run("scontrol", "requeue", f"{job.job_id}_0", user="root")
    await until(alice, key, lambda job: bool(job.array and job.array.succeeded == 1))
    begins(server, job, "_0")
    await until(alice, key, lambda job: bool(job.array and job.array.succeeded == len(readers)))
    await alice.cancel_job(key)
    await ended(alice, key)
    for reader in readers:
        await reader.whole()
    assert [bytes(reader.copied) for reader in readers] == [b"begun\nbegun\n", b"begun\n"]
