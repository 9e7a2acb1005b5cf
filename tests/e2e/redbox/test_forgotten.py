"""Jobs that a killed slurmctld has forgotten: known within a minute, run again only if they never began.

All of it nightly, with accounting, and without any on a slow home; slurmjobs/test_forgotten.py is the short
form. FORGOTTEN_KILLS says how often slurmctld is killed 0 to 5 s after submits (once; 3 times nightly, 30 by
hand), FORGOTTEN_SEED repeats the moments of another run.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from redbox_api.client import RedboxClient
from redbox_api.errors import Busy, NotAccepted, Unreachable
from redbox_api.models import FINAL_PHASES, Dependency, Job, JobRequest, Phase
from redbox_bed import slow_home
from redbox_bed.bed import Bed
from redbox_bed.core.plan import Options
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until
from tests import nightly
from tests.e2e.harness.redbox_jobs import Reader, ended, log_of, new_key, script, started, submit, until
from tests.e2e.harness.redbox_server import RedboxServer, running
from tests.e2e.harness.side_bed import bed_beside
from tests.e2e.harness.slurmctld_restart import (
    administrator,
    kill_and_start,
    leave_forgotten_ids,
    nothing_saved,
    save_state,
)

KILLS = nightly.count("FORGOTTEN_KILLS", 1, 3)
SEED = os.environ.get("FORGOTTEN_SEED") or secrets.token_hex(4)
KNOWN_WITHIN_S = 60.0
BACKOFF_LIMIT = 3
KILL_SETTLES_S = (BACKOFF_LIMIT + 1) * (KNOWN_WITHIN_S + 60.0)  # each attempt may be forgotten
pytestmark = pytest.mark.nightly
SMALL = {"resources": {"time": "5", "memPerNode": "20M"}}


@pytest.fixture(scope="module", params=["accounted", "unaccounted, slow home"])
def bed(bed: Bed, request: pytest.FixtureRequest) -> Iterator[Bed]:
    """The usual bed, or one of its own beside it, which keeps no accounts and shows files late."""
    if request.param == "accounted":
        yield bed
        leave_forgotten_ids(bed.host("login"))
        return
    with bed_beside("unaccounted", Options(accounting=False, slow_home=True)) as made:
        yield made


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    with running(bed) as server:
        yield server


@pytest.fixture
async def alice(server: RedboxServer) -> AsyncIterator[RedboxClient]:
    async with server.client_of("alice") as client:
        yield client


async def forgotten(alice: RedboxClient, key: str) -> Job:
    job = await ended(alice, key, within_s=KNOWN_WITHIN_S)
    assert (job.phase, job.reason) == (Phase.LOST, "ForgottenBySlurm"), job
    return job


# ------------------------------------------------------------------------- what is known of a start
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "array": {"array": "0-3"},
    "own output": {"output": "/home/alice/mine-%j.txt"},
    "het": {"batch": "#!/bin/sh\n#SBATCH -n1 --mem=20M\n#SBATCH hetjob\n#SBATCH -n1 --mem=20M\nsleep 600\n"},
}


def of_kind(kind: str, **fields: Any) -> JobRequest:
    merged = {"batch": "#!/bin/sh\necho begun\nexec sleep 600\n", **KINDS[kind], **fields}
    if kind != "het":
        merged |= SMALL
    return JobRequest.model_validate(merged)


async def test_jobs_that_had_not_started_show_no_sign_of_it(bed: Bed, alice: RedboxClient) -> None:
    keys = {kind: new_key() for kind in KINDS}
    with nothing_saved(bed):
        for kind, key in keys.items():
            await alice.put_job(key, of_kind(kind, hold=True))
            await until(alice, key, lambda job: job.state == "PENDING")
    stale = await until(alice, keys["plain"], lambda job: job.stale_since is not None)
    assert stale.phase is Phase.PENDING
    assert stale.reason is None
    for kind, key in keys.items():
        job = await forgotten(alice, key)
        assert job.no_sign_of_start, (kind, job)
        assert "Nothing shows that it started" in (job.message or "")


async def test_jobs_that_had_started_say_so_and_are_read_to_their_end(bed: Bed, alice: RedboxClient) -> None:
    keys = {kind: new_key() for kind in KINDS}
    with nothing_saved(bed):
        for kind, key in keys.items():
            await alice.put_job(key, of_kind(kind))
            await started(alice, key)
        await Reader(alice, keys["plain"]).until_begins(b"begun\n")
    for kind, key in keys.items():
        job = await forgotten(alice, key)
        assert not job.no_sign_of_start, (kind, job)
        assert "It may have started" in (job.message or "")
    for kind in ("plain", "own output"):
        assert await log_of(alice, keys[kind]) == "begun\n"


async def test_an_output_file_that_was_there_before_counts_as_a_start(
    bed: Bed, server: RedboxServer, alice: RedboxClient
) -> None:
    path = f"/home/alice/{new_key()}"
    server.login.run("touch", path, user="alice")
    with nothing_saved(bed):
        key = await submit(alice, "true", hold=True, output=path)
    job = await forgotten(alice, key)
    assert not job.no_sign_of_start
    assert f"its output file {path} exists" in (job.message or "")


async def test_a_start_that_no_poll_showed_is_not_missed(
    bed: Bed, server: RedboxServer, alice: RedboxClient
) -> None:
    login = server.login
    if bed.plan.has_slow_home(login.spec):
        slow_home.command(bed, login, "negative", "10h")
    with nothing_saved(bed):
        key = await submit(alice, "echo begun", "exec sleep 600", hold=True)
        job = await until(alice, key, lambda job: output(job) != "")
        server.kill()
        # That it is absent is cached from now on: only a listing of the folder shows it.
        assert login.run("test", "-e", output(job), user="alice", check=False).returncode == 1
        login.run("scontrol", "release", job.job_id or "", user="alice")
        wait_until(lambda: shows_begun(bed, job), 60, "the job did not begin")
    server.start()
    job = await forgotten(alice, key)
    assert not job.no_sign_of_start, job


def output(job: Job) -> str:
    return job.logs.stdout or ""


def shows_begun(bed: Bed, job: Job) -> bool:
    """Whether a node's own view of the output has the job's first line."""
    views = (node.run("cat", output(job), user="alice", check=False) for node in computing(bed))
    return any(view.stdout == "begun\n" for view in views)


def computing(bed: Bed) -> list[Host]:
    return [bed.host(name) for name in bed.plan.clusters[0].hosts if name.startswith("n")]


async def test_a_dependant_waits_for_the_next_attempt_while_a_stranger_has_the_id(
    bed: Bed, server: RedboxServer, alice: RedboxClient
) -> None:
    """The stranger: alice's own job, whose mark she has overwritten before a poll had shown it."""
    login = server.login
    async with polled_no_more(server, alice):
        parent = await submit(alice, "true", hold=True)
        child = await submit(alice, "true", dependencies=[{"type": "afterok", "key": parent}])
        stranger = (await alice.get_job(parent)).job_id or ""
        login.run("scontrol", "update", f"JobId={stranger}", "Comment=a-stranger", user="alice")
        save_state(login, bed.host("ctl"))
        kill_and_start(bed)
    assert (await forgotten(alice, parent)).no_sign_of_start
    await until(alice, child, lambda job: job.reason == "JobHeldUser")
    login.run("scontrol", "release", stranger, user="alice")
    wait_until(lambda: not queued(login, stranger), 60, "the stranger did not end")
    await alice.put_job(parent, script("true", hold=True), attempt=2)
    held = await alice.get_job(parent, attempt=2)
    child_id = (await alice.get_job(child)).job_id or ""
    expected = f"afterok:{held.job_id}"
    wait_until(lambda: expected in queued(login, child_id), 60, f"the child does not depend on {expected}")
    await alice.act_on_job(parent, "release", attempt=2)
    assert (await ended(alice, child)).phase is Phase.SUCCEEDED


@asynccontextmanager
async def polled_no_more(server: RedboxServer, alice: RedboxClient) -> AsyncIterator[None]:
    """As long as this lasts, no poll shows a new job: red-box polls when it starts, and then pauses."""
    usual = server.sections
    restart(server, {"jobs": {"shortest_interval_s": 600.0, "longest_interval_s": 600.0}})
    last = await submit(alice, "true", hold=True)
    await until(alice, last, lambda job: job.state == "PENDING")
    yield
    restart(server, usual)


def restart(server: RedboxServer, sections: Mapping[str, Any]) -> None:
    server.kill()
    server.configure(sections)
    server.start()


def queued(login: Host, job_id: str) -> str:
    """What the queue says of a job that has not ended: what it waits for."""
    shown = login.run("squeue", "-h", "-t", "PD,R,CG", "-j", job_id, "-o", "%T %E", check=False)
    return shown.stdout


async def test_a_dependant_never_follows_the_stranger_that_was_given_the_id(
    bed: Bed, alice: RedboxClient
) -> None:
    with nothing_saved(bed):
        parent = await submit(alice, "true", hold=True)
        child = await submit(alice, "true", dependencies=[{"type": "afterok", "key": parent}])
    late = script("true", dependencies=[Dependency(type="afterok", key=parent)])
    with pytest.raises(Busy, match="does not show job"):
        await alice.put_job(new_key(), late)
    for key in (parent, child):
        assert (await forgotten(alice, key)).no_sign_of_start
    with pytest.raises(NotAccepted, match="ended Lost"):
        await alice.put_job(new_key(), late)


async def test_a_second_run_that_slurm_does_not_count_is_a_run(
    bed: Bed, server: RedboxServer, alice: RedboxClient
) -> None:
    key = await submit(alice, "echo run", "exec sleep 600", hold=True)
    await until(alice, key, lambda job: job.reason == "JobHeldUser")
    with nothing_saved(bed):
        await alice.act_on_job(key, "release")
        await started(alice, key)
    job = await until(alice, key, lambda job: job.phase is Phase.PENDING and job.stale_since is None)
    assert job.run == 2
    # A node that still has the first run, or has ended it in this second, refuses the next one.
    wait_until(lambda: not any(map(runs_alices, computing(bed))), 90, "the first run was never ended")
    server.login.run("scontrol", "update", f"JobId={job.job_id}", "StartTime=now+5", user="alice")
    await alice.act_on_job(key, "release")
    job = await started(alice, key)
    shown = server.login.run("squeue", "-h", "-O", "RestartCnt", "-j", job.job_id or "").stdout
    assert (job.run, shown.strip()) == (2, "0")
    assert any("this is run 2" in warning for warning in job.warnings)
    await alice.cancel_job(key)
    await ended(alice, key)


def runs_alices(node: Host) -> bool:
    return node.run("pgrep", "-u", "alice", "-x", "sleep", check=False).returncode == 0


# ------------------------------------------------------------------------- killed at random
LINES = 400
QUIET_S = 6.0  # Slurm saves the first change after a while without any at once, the next ones later
OUTPUT = "".join(f"{number}\n" for number in range(1, LINES + 1)).encode()
LEDGER = "/home/alice/ledger-{}"
OF_A_JOB = re.compile(r"\b[Jj]ob(?:Id=| )(\d+)")


@dataclass
class Account:
    """What became of one key, attempt by attempt, as an operator with `backoffLimit` would have it."""

    key: str
    code: int
    attempts: list[Job] = field(default_factory=list)
    log: bytes = b""


async def killed_after(bed: Bed, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await asyncio.to_thread(kill_and_start, bed)


async def run_to_its_end(alice: RedboxClient, account: Account, ledger: str) -> None:
    for attempt in range(1, BACKOFF_LIMIT + 2):
        line = f"{account.key} {attempt}"
        lines = (f"echo {line} >> {ledger}", f"seq {LINES}", "sleep 1", f"exit {account.code}")
        request = script(*lines, name="storm", **SMALL)
        await put(alice, account.key, attempt, request)
        job = await final(alice, account.key, attempt)
        account.attempts.append(job)
        if not job.no_sign_of_start:
            account.log = await whole_log(alice, account.key, attempt)
            return


async def put(alice: RedboxClient, key: str, attempt: int, request: JobRequest) -> None:
    while True:
        try:
            await alice.put_job(key, request, attempt=attempt)
        except (Busy, Unreachable):
            await asyncio.sleep(0.3)
        else:
            return


async def final(alice: RedboxClient, key: str, attempt: int) -> Job:
    while True:
        try:
            job = await alice.get_job(key, attempt=attempt)
        except (Busy, Unreachable):
            await asyncio.sleep(0.3)
            continue
        if job.phase in FINAL_PHASES:
            return job
        await asyncio.sleep(0.3)


async def whole_log(alice: RedboxClient, key: str, attempt: int) -> bytes:
    reader = Reader(alice, key, attempt=attempt)
    return await reader.whole()


@pytest.mark.timeout(600 + 90 * KILLS)
async def test_whenever_slurmctld_is_killed_no_script_runs_again_that_had_begun(
    bed: Bed, server: RedboxServer, alice: RedboxClient
) -> None:
    print(f"FORGOTTEN_SEED={SEED} FORGOTTEN_KILLS={KILLS}")
    chance = random.Random(SEED)
    ledger = LEDGER.format(secrets.token_hex(4))
    accounts: list[Account] = []
    with administrator(bed):
        for _ in range(KILLS):
            await asyncio.sleep(QUIET_S)
            async with asyncio.timeout(KILL_SETTLES_S), asyncio.TaskGroup() as group:
                kill = group.create_task(killed_after(bed, chance.uniform(0, 5)))
                for _ in range(chance.randint(3, 6)):
                    account = Account(new_key(), chance.choice([0, 0, 5]))
                    accounts.append(account)
                    group.create_task(run_to_its_end(alice, account, ledger))
                    await asyncio.sleep(chance.uniform(0, 0.8))
                await kill
    began = server.login.run("cat", ledger).stdout.splitlines()
    print(summary(accounts, began))
    faults = {account.key: faults_of(account, began) for account in accounts}
    at_fault = [account for account in accounts if faults[account.key]]
    if at_fault:
        print(*told_by_slurm(bed, at_fault), sep="\n")
    assert [fault for of_key in faults.values() for fault in of_key] == []


def faults_of(account: Account, began: list[str]) -> list[str]:
    """Each way in which what was said of a key is not what is."""
    last, faults = account.attempts[-1], []
    for number, job in enumerate(account.attempts, 1):
        if job.no_sign_of_start and f"{account.key} {number}" in began:
            faults.append(f"{account.key}: attempt {number} began, and is said to show no sign of it")
        if job.phase is Phase.LOST and job.reason != "ForgottenBySlurm":
            faults.append(f"{account.key}: attempt {number} is {job}")
    if last.phase is Phase.LOST:
        if last.no_sign_of_start:
            faults.append(f"{account.key}: {len(account.attempts)} attempts, all forgotten")
        if account.log and not OUTPUT.startswith(account.log):
            faults.append(f"{account.key}: its log has {len(account.log)} bytes that it did not write")
    elif (last.exit_code, account.log) != (account.code, OUTPUT):
        whole = "whole" if account.log == OUTPUT else f"{len(account.log)} bytes"
        faults.append(f"{account.key}: exit {account.code}, log {whole}, shown as {last}")
    return faults


def told_by_slurm(bed: Bed, accounts: list[Account]) -> Iterator[str]:
    """What the daemons logged of each id of these keys."""
    ids = {job.job_id for account in accounts for job in account.attempts if job.job_id}
    for name, host in (("slurmctld", bed.host("ctl")), *(("slurmd", node) for node in computing(bed))):
        for line in host.read(f"/var/log/bed/{name}.log").decode(errors="replace").splitlines():
            if ids & set(OF_A_JOB.findall(line)):
                yield f"{host.name} {line}"


def summary(accounts: list[Account], began: list[str]) -> str:
    attempts = [job for account in accounts for job in account.attempts]
    lost = [job for job in attempts if job.phase is Phase.LOST]
    again = len(began) - len(set(began))
    return (
        f"{KILLS} kills, {len(accounts)} keys, {len(attempts)} attempts, {len(lost)} forgotten, "
        f"{sum(job.no_sign_of_start for job in lost)} of them without a sign of a start; "
        f"{again} second runs by Slurm, {sum(job.run > 1 for job in attempts)} shown"
    )
