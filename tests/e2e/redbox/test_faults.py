"""Whatever is killed or cut, each key is one job or a clear refusal, and each log is its file, byte for byte.

REDBOX_KILLS says how often red-box is killed under load (3; 8 nightly), REDBOX_SEED repeats the moments
of another run, REDBOX_HANGS_S says for how long slurmctld hangs (12; 20 nightly).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
from collections.abc import Iterator

import pytest

from redbox.agents.transports.sudo import AGENT_PATH
from redbox_api.client import RedboxClient
from redbox_api.errors import Busy
from redbox_api.models import Job, Phase
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until
from tests import nightly
from tests.e2e.harness.accounting import SINCE
from tests.e2e.harness.faults import stopped
from tests.e2e.harness.redbox_jobs import Reader, ended, log_of, new_key, script, started, submit, until
from tests.e2e.harness.redbox_server import NAME, RedboxServer, running
from tests.e2e.harness.slurmctld_restart import save_state
from tests.e2e.harness.storm import Storm

KILLS = nightly.count("REDBOX_KILLS", 3, 8)
HANGS_S = nightly.size("REDBOX_HANGS_S", 12, 20)
SEED = os.environ.get("REDBOX_SEED") or secrets.token_hex(4)
UNUSABLE = 78
IMPATIENT = {
    "jobs": {
        "answer_within_s": 4.0,  # instead of 25: for what sbatch hangs in
        "settle_s": 8.0,  # instead of 60: how long an unanswered submit stays unconfirmed
        "arrives_within_s": 20.0,  # instead of 300: how late one may be that was sent before a retry
        "rows_late_s": 5.0,  # instead of 600: how long accounting may be late
    },
    "slurm": {"read_s": 4.0},  # instead of 15: for what squeue hangs in
}


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    with running(bed, sections=IMPATIENT) as server:
        yield server


@pytest.fixture
def controller(bed: Bed) -> Iterator[Host]:
    """The host of slurmctld; it is whole again afterwards, whatever a test did to it."""
    host = bed.host("ctl")
    yield host
    host.link(up=True)
    bed.slurms[0].up()


def jobs_named(login: Host, name: str) -> set[str]:
    """The ids of all jobs of this name that Slurm knows or knew."""
    live = login.run("squeue", "-a", "-h", "-t", "all", f"--name={name}", "-o", "%A").stdout
    past = login.run("sacct", SINCE, "-a", "-X", "-D", "-n", "-P", "-o", "JobIDRaw", f"--name={name}").stdout
    return {*live.split(), *past.split()}


async def put_until_answered(client: RedboxClient, key: str, name: str) -> Job:
    while True:
        try:
            return await client.put_job(key, script("true", name=name))
        except Busy as busy:
            await asyncio.sleep(min(busy.retry_after or 1, 2))


# ------------------------------------------------------------------------------------ red-box itself
async def test_a_killed_red_box_starts_over_its_stale_socket_and_knows_its_jobs(
    server: RedboxServer, alice: RedboxClient
) -> None:
    key = await submit(alice, "exec sleep 600")
    before = await started(alice, key)
    server.kill()
    server.login.run("test", "-S", server.socket)
    server.start()
    assert (await alice.get_job(key)).job_id == before.job_id
    by_socket = ("curl", "-sS", "--unix-socket", server.socket, "http://redbox/v1/whoami")
    assert json.loads(server.login.run(*by_socket, user="alice").stdout)["user"] == "alice"
    assert server.login.run(*by_socket, user="root").stdout.count('"status":403') == 1
    await alice.cancel_job(key)
    assert (await ended(alice, key)).phase is Phase.CANCELLED


async def test_a_second_red_box_on_the_journal_refuses_and_harms_nothing(
    server: RedboxServer, alice: RedboxClient
) -> None:
    second = server.login.run(*server.command(), user=server.user, check=False, timeout=60)
    assert second.returncode == UNUSABLE
    assert "journal" in second.stderr
    assert len(second.stderr.strip().splitlines()[-1:]) == 1
    assert (await alice.whoami()).user == "alice"
    server.login.run("test", "-S", server.socket)


async def test_a_killed_agent_is_replaced_and_its_reader_misses_nothing(
    server: RedboxServer, alice: RedboxClient
) -> None:
    key = await submit(alice, "for i in $(seq 1 40); do seq 1 500; sleep 0.05; done")
    reader = Reader(alice, key)
    reading = asyncio.create_task(reader.whole())
    for size in (1, 10_000, 40_000):
        async with asyncio.timeout(120):
            while len(reader.content) < size:  # noqa: ASYNC110 (the reader has no event to wait for)
                await asyncio.sleep(0.02)
        await asyncio.to_thread(kill_agents_of, server.login, "alice")
    expected = "".join(f"{number}\n" for number in range(1, 501)) * 40
    assert (await asyncio.wait_for(reading, 120)).decode() == expected


def kill_agents_of(login: Host, user: str) -> None:
    def killed() -> bool:
        pids = login.run("pgrep", "-u", user, "-f", AGENT_PATH, check=False).stdout.split()
        return bool(pids) and login.run("kill", "-KILL", *pids, check=False).returncode == 0

    wait_until(killed, 60, f"{user} has no agent")


# ------------------------------------------------------------------------------------ slurmctld
async def test_a_submit_while_slurmctld_is_dead_is_503_and_later_exactly_one_job(
    bed: Bed, server: RedboxServer, alice: RedboxClient, controller: Host
) -> None:
    save_state(server.login, controller)
    key, name = new_key(), f"dead-{new_key()}"
    controller.kill("slurmctld")
    with pytest.raises(Busy) as busy:
        await alice.put_job(key, script("true", name=name))
    assert busy.value.retry
    assert busy.value.retry_after
    await asyncio.to_thread(bed.slurms[0].up)
    async with asyncio.timeout(150):
        job = await put_until_answered(alice, key, name)
    assert (await ended(alice, key)).phase is Phase.SUCCEEDED
    assert jobs_named(server.login, name) == {job.job_id}


async def test_a_submit_while_slurmctld_hangs_is_503_and_later_exactly_one_job(
    server: RedboxServer, alice: RedboxClient, controller: Host
) -> None:
    key, name = new_key(), f"hang-{new_key()}"
    with stopped(controller, "slurmctld"):
        for _ in range(2):
            with pytest.raises(Busy) as busy:
                await alice.put_job(key, script("true", name=name))
            assert busy.value.retry
        server.kill()  # and the sbatch that hangs is of a red-box that is no more
    server.start()
    async with asyncio.timeout(150):
        job = await put_until_answered(alice, key, name)
    assert (await ended(alice, key)).phase is Phase.SUCCEEDED
    assert jobs_named(server.login, name) == {job.job_id}


@pytest.mark.timeout(HANGS_S + 400)
async def test_keys_that_are_put_again_and_again_while_slurmctld_hangs_are_one_job_each(
    server: RedboxServer, alice: RedboxClient, controller: Host
) -> None:
    names = {new_key(): f"stopped-{new_key()}" for _ in range(5)}
    async with asyncio.timeout(HANGS_S + 150), asyncio.TaskGroup() as group:
        with stopped(controller, "slurmctld"):
            puts = {
                key: group.create_task(put_until_answered(alice, key, name)) for key, name in names.items()
            }
            await asyncio.sleep(HANGS_S)
            assert not any(put.done() for put in puts.values())
    for key, name in names.items():
        assert (await ended(alice, key)).phase is Phase.SUCCEEDED
        assert jobs_named(server.login, name) == {puts[key].result().job_id}


@pytest.mark.timeout(400)
async def test_while_munged_is_dead_submits_are_503_and_states_stale_and_then_all_is_well(
    bed: Bed, server: RedboxServer, alice: RedboxClient
) -> None:
    running_key, key, name = await submit(alice, "exec sleep 600"), new_key(), f"munge-{new_key()}"
    await started(alice, running_key)
    server.login.kill("munged")
    try:
        with pytest.raises(Busy) as busy:
            await alice.put_job(key, script("true", name=name))
        assert busy.value.retry
        stale = await until(alice, running_key, lambda job: job.stale_since is not None)
        assert stale.phase is Phase.RUNNING
    finally:
        await asyncio.to_thread(bed.slurms[0].up)
    async with asyncio.timeout(150):
        job = await put_until_answered(alice, key, name)
    assert (await ended(alice, key)).phase is Phase.SUCCEEDED
    assert jobs_named(server.login, name) == {job.job_id}
    await until(alice, running_key, lambda job: job.stale_since is None)
    await alice.cancel_job(running_key)
    await ended(alice, running_key)


async def test_a_red_box_that_starts_while_slurm_is_away_says_what_it_knows(
    bed: Bed, server: RedboxServer, alice: RedboxClient, controller: Host
) -> None:
    key = await submit(alice, "echo before", "exec sleep 600")
    before = await started(alice, key)
    await Reader(alice, key).until_begins(b"before\n")
    save_state(server.login, controller)
    controller.kill("slurmctld")
    server.kill()
    server.start()
    job = await until(alice, key, lambda job: job.stale_since is not None)
    assert (job.phase, job.job_id) == (Phase.RUNNING, before.job_id)
    await Reader(alice, key).until_begins(b"before\n")
    with pytest.raises(Busy):
        await submit(alice, "true")
    await asyncio.to_thread(bed.slurms[0].up)
    await until(alice, key, lambda job: job.stale_since is None)
    await alice.cancel_job(key)
    assert (await ended(alice, key)).phase is Phase.CANCELLED


async def test_while_slurmdbd_hangs_a_red_box_starts_and_runs_jobs(
    server: RedboxServer, controller: Host, alice: RedboxClient
) -> None:
    server.kill()
    with stopped(controller, "slurmdbd"):
        server.start()
        job = await ended(alice, await submit(alice, "exit 3"))
        assert (job.phase, job.exit_code) == (Phase.FAILED, 3)
        assert (await alice.cluster()).stale_since is None


async def test_states_are_said_to_be_stale_while_slurmctld_hangs(
    alice: RedboxClient, controller: Host
) -> None:
    key = await submit(alice, "exec sleep 600")
    await started(alice, key)
    with stopped(controller, "slurmctld"):
        stale = await until(alice, key, lambda job: job.stale_since is not None)
        assert (stale.phase, stale.state) == (Phase.RUNNING, "RUNNING")
    fresh = await until(alice, key, lambda job: job.stale_since is None)
    assert fresh.phase is Phase.RUNNING
    await alice.cancel_job(key)
    await ended(alice, key)


async def test_a_job_whose_id_was_given_out_again_is_lost_and_the_stranger_is_untouched(
    bed: Bed, server: RedboxServer, alice: RedboxClient, controller: Host
) -> None:
    save_state(server.login, controller)
    key, cancelled = new_key(), new_key()
    jobs = [await alice.put_job(one, script("true", name="forgotten", hold=True)) for one in (key, cancelled)]
    controller.kill("slurmctld")
    await asyncio.to_thread(bed.slurms[0].up)
    ids = {str(job.job_id) for job in jobs}
    strangers = take_ids(server.login, last=max(map(int, ids)))
    assert ids <= strangers, "slurmctld had saved the jobs before it was killed"
    await alice.cancel_job(cancelled)
    for one in (key, cancelled):
        job = await ended(alice, one)
        assert (job.phase, job.exit_code) == (Phase.LOST, None)
        assert "has given the job id" in (job.message or "")
    shown = server.login.run("squeue", "-h", "-o", "%A %T %k", "-j", ",".join(ids)).stdout.splitlines()
    assert sorted(shown) == sorted(f"{job_id} PENDING stranger" for job_id in ids)
    server.login.run("scancel", *strangers)


def take_ids(login: Host, last: int) -> set[str]:
    """Submit jobs of alice's, not by red-box, until slurmctld has given out this id."""
    taken: set[str] = set()
    while not taken or max(map(int, taken)) < last:
        command = (
            "sbatch",
            "--parsable",
            "--hold",
            "--comment=stranger",
            "--job-name=forgotten",
            "--wrap=id",
        )
        taken.add(login.run(*command, user="alice").stdout.strip())
        assert len(taken) < 100
    return taken


# ------------------------------------------------------------------------------------ everything at once
@pytest.mark.timeout(300 + 20 * KILLS)
async def test_under_kills_and_cuts_each_key_is_one_job_and_each_log_is_its_file(
    bed: Bed, server: RedboxServer, controller: Host
) -> None:
    print(f"REDBOX_SEED={SEED} REDBOX_KILLS={KILLS}")
    storm = Storm(bed, server, random.Random(SEED))
    async with asyncio.timeout(280 + 20 * KILLS), storm.blowing():
        for number in range(KILLS):
            if number == KILLS // 3:
                await storm.kill_slurmctld(lambda: save_state(server.login, controller))
            if number == 2 * KILLS // 3:
                await storm.cut_cable(controller)
            await storm.kill_redbox()
    print(storm.summary())
    assert storm.done
    faults = await storm.faults()
    print(*faults, sep="\n")  # whole, which an assertion does not show
    assert faults == []


async def test_after_all_that_red_box_is_as_good_as_new(server: RedboxServer, alice: RedboxClient) -> None:
    key = await submit(alice, "echo well")
    assert (await ended(alice, key)).phase is Phase.SUCCEEDED
    assert await log_of(alice, key) == "well\n"
    assert server.login.running(NAME)
