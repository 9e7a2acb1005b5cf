"""The jobs core on the real Slurm: one key is one job, whatever becomes of the server that submits it."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from redbox.agents.pool import AgentPool
from redbox.core.clock import SystemClock
from redbox.core.domain import Caller, Limits, Owner, Role, UnixUser
from redbox.jobs.errors import JobNotFound, JobsBusy
from redbox.jobs.record.marks import Marks
from redbox.jobs.record.packed_records import unpack
from redbox.jobs.recovery import recover, write
from redbox.jobs.service import JobService
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.journal import FILE_NAME, Journal
from redbox.slurm.slurm_manager import SlurmManager
from redbox_api.models import FINAL_PHASES, Job, JobRequest, Phase
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.e2e.harness.login_node import ALICE, BOB, CAROL, HostTransport

PATIENCE_S = 120.0
MARKS = Marks(secrets.token_bytes(32), "hpc1")
SETTINGS = JobsSettings(answer_within_s=30, arrives_within_s=20, settle_s=15)


def caller(user: UnixUser = ALICE) -> Caller:
    owner = Owner("kube", user.name, "default", "uid-1")
    return Caller(user.name, owner, frozenset({Role.SUBMIT}), user, Limits())


def request(*lines: str) -> JobRequest:
    return JobRequest(batch="\n".join(["#!/bin/sh", *lines, ""]), partition="debug")


def new_key() -> str:
    return f"core-{secrets.token_hex(6)}"


@pytest.fixture
def login(bed: Bed) -> Host:
    return bed.host("login")


@asynccontextmanager
async def server(login: Host, directory: Path) -> AsyncIterator[JobService]:
    """A server with agents of its own; what it began goes on in Slurm when it ends."""
    journal = Journal(directory)
    try:
        async with (
            AgentPool(HostTransport(login)) as pool,
            JobService(journal, SlurmManager(pool, observer=CAROL), MARKS, settings=SETTINGS) as jobs,
        ):
            yield jobs
    finally:
        journal.close()


async def until_final(jobs: JobService, key: str) -> Job:
    """As a watcher hears of it."""
    async with asyncio.timeout(PATIENCE_S):
        async for event in jobs.watch(caller()):
            if event.job is not None and event.job.key == key and event.job.phase in FINAL_PHASES:
                return event.job
    raise AssertionError(key)


async def put_until_answered(jobs: JobService, key: str, wanted: JobRequest) -> Job:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(JobsBusy):
                return (await jobs.put(caller(), key, 1, wanted))[0]
            await asyncio.sleep(1)


def jobs_by_key(login: Host) -> Counter[str]:
    """How many jobs of each key the queue shows, ended ones too."""
    shown = login.run("squeue", "-h", "-a", "-t", "all", "-o", "%k").stdout
    return Counter(line.split(".")[1] for line in shown.splitlines() if line.startswith("rb1."))


def state_of(login: Host, job_id: str) -> str:
    return login.run("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T").stdout.strip()


async def test_a_job_runs_as_its_user_and_its_end_and_paths_are_slurms(login: Host, tmp_path: Path) -> None:
    key = new_key()
    async with server(login, tmp_path) as jobs:
        job, created = await jobs.put(caller(), key, 1, request("#SBATCH -J mine", "id -un", "exit 3"))
        assert created
        assert not (await jobs.put(caller(), key, 1, request("#SBATCH -J mine", "id -un", "exit 3")))[1]
        job = await until_final(jobs, key)
    assert (job.phase, job.exit_code, job.name, job.user) == (Phase.FAILED, 3, "mine", "alice")
    assert job.logs.stdout is not None
    assert login.read(job.logs.stdout).decode() == "alice\n"


@pytest.mark.timeout(300)
async def test_a_server_that_dies_at_any_moment_of_a_submit_leaves_one_job(
    login: Host, tmp_path: Path
) -> None:
    keys = [new_key() for _ in range(12)]
    wanted = request("exit 0")
    for key in keys:
        async with server(login, tmp_path) as jobs:
            task = asyncio.create_task(jobs.put(caller(), key, 1, wanted))
            await asyncio.sleep(random.uniform(0, 0.4))
            task.cancel()
    async with server(login, tmp_path) as jobs:
        answers = [await put_until_answered(jobs, key, wanted) for key in keys]
        for key in keys:
            assert (await until_final(jobs, key)).phase is Phase.SUCCEEDED
    counted = jobs_by_key(login)
    assert {key: counted[key] for key in keys} == dict.fromkeys(keys, 1)
    assert len({job.job_id for job in answers}) == len(keys)


async def test_a_lost_journal_is_rebuilt_under_running_jobs(login: Host, tmp_path: Path) -> None:
    runs, ends = new_key(), new_key()
    async with server(login, tmp_path) as jobs:
        first, _ = await jobs.put(caller(), runs, 1, request("exec sleep 300"))
        await jobs.put(caller(), ends, 1, request("exit 4"))
        await until_final(jobs, ends)
    for path in tmp_path.glob(f"{FILE_NAME}*"):
        path.unlink()
    journal = Journal(tmp_path)
    async with AgentPool(HostTransport(login)) as pool:
        clock = SystemClock()
        recovered = await recover(SlurmManager(pool, observer=CAROL), MARKS, clock, SETTINGS, [ALICE, BOB])
        await write(journal, recovered, clock.now())
    journal.close()
    async with server(login, tmp_path) as jobs:
        assert (await jobs.get(caller(), ends)).exit_code == 4
        again, created = await jobs.put(caller(), runs, 1, request("exec sleep 300"))
        assert (again.job_id, created) == (first.job_id, False)
        with pytest.raises(JobNotFound):
            await jobs.get(caller(BOB), runs)
        await jobs.delete(caller(), runs)
        assert (await until_final(jobs, runs)).phase is Phase.CANCELLED


async def test_bob_gains_nothing_by_copying_alices_mark(login: Host, tmp_path: Path) -> None:
    key = new_key()
    async with server(login, tmp_path) as jobs:
        hers, _ = await jobs.put(caller(), key, 1, request("exec sleep 300"))
        mark = next(record.mark for record in jobs if record.key.key == key)
        his = login.run(
            "sbatch", "--parsable", f"--comment={mark}", "--wrap", "sleep 20", user="bob"
        ).stdout.strip()
        await asyncio.sleep(5)
        job = await jobs.get(caller(), key)
        assert (job.job_id, job.warnings) == (hers.job_id, [])
        await jobs.delete(caller(), key)
        assert (await until_final(jobs, key)).phase is Phase.CANCELLED
        assert state_of(login, his) in ("PENDING", "RUNNING", "COMPLETED", "COMPLETING")
    login.run("scancel", his, user="bob")


async def test_a_second_job_with_the_mark_of_the_same_user_is_cancelled_while_it_waits(
    login: Host, tmp_path: Path
) -> None:
    key = new_key()
    async with server(login, tmp_path) as jobs:
        first, _ = await jobs.put(caller(), key, 1, request("exec sleep 300"))
        record = unpack(next(outline for outline in jobs if outline.key.key == key))
        copy = (
            "sbatch",
            "--parsable",
            "--hold",
            f"--comment={record.mark}",
            "-J",
            record.job_name,
            "--wrap",
            "true",
        )
        second = login.run(*copy, user="alice").stdout.strip()
        async with asyncio.timeout(PATIENCE_S):
            async for _ in jobs.watch(caller()):  # bookmarks at the latest
                if state_of(login, second) == "CANCELLED":
                    break
        job = await jobs.get(caller(), key)
        assert job.job_id == first.job_id
        assert any(f"Duplicate: job {second}" in warning for warning in job.warnings)
        await jobs.delete(caller(), key)
        await until_final(jobs, key)
