"""The Slurm workload manager over real agents on the bed's login host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from redbox.agents.pool import AgentPool
from redbox.core.workload_manager import (
    JobAction,
    JobHandle,
    SubmitAccepted,
    SubmitRejected,
    WorkloadManagerError,
)
from redbox.slurm.slurm_manager import SlurmManager
from redbox.slurm.text.states import has_ended
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.e2e.harness.login_node import ALICE, BOB, CAROL, HostTransport
from tests.e2e.harness.slurm_submits import PATIENCE_S, Submitted, output, submission, submit

CLUSTER = "hpc1"


@pytest.fixture
def login(bed: Bed) -> Host:
    return bed.host("login")


@pytest.fixture
async def manager(login: Host) -> AsyncIterator[SlurmManager]:
    async with AgentPool(HostTransport(login)) as pool:
        yield SlurmManager(pool, observer=CAROL)


# ------------------------------------------------------------------------------------------ submits
async def test_a_script_runs_with_its_env_exact_its_directory_made_and_its_outputs_apart(
    manager: SlurmManager, login: Host
) -> None:
    value = "a,b\nc'\"$(id)\\ü\t "
    script = '#!/bin/sh\nprintf %s "$VALUE"\npwd >&2\nenv | grep -c ^SBATCH_ >&2\nexit 200\n'
    job = await submit(manager, batch=script, env={"VALUE": value, "PATH": "/usr/bin:/bin"})
    end = await job.ended()
    assert (end.state, end.exit_code, end.signal, end.uid) == ("FAILED", 200, None, ALICE.uid)
    assert end.mark == job.submission.mark
    assert output(login, job) == value
    directory = job.accepted.working_directory
    assert output(login, job, "slurm-{id}.err") == f"{directory}\n0\n"
    assert (end.stdout, end.stderr) == (f"{directory}/slurm-{job.id}.out", f"{directory}/slurm-{job.id}.err")


async def test_a_job_without_env_has_the_environment_of_its_users_account(
    manager: SlurmManager, login: Host
) -> None:
    job = await submit(manager, batch='#!/bin/sh\nprintf %s "$HOME $USER ${PATH:+path}"\n')
    await job.ended()
    assert output(login, job) == "/home/alice alice path"


async def test_env_arrives_although_the_script_exports_nothing(manager: SlurmManager, login: Host) -> None:
    script = '#!/bin/sh\n#SBATCH --export=NONE\nprintf %s "$VALUE"\n'
    job = await submit(manager, batch=script, env={"VALUE": "here"})
    await job.ended()
    assert output(login, job) == "here"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"batch": "#!/bin/sh\n", "partition": "nope"}, "invalid partition"),
        ({"batch": "#!/bin/sh\n", "account": "nope"}, "Invalid account"),
        ({"batch": "#!/bin/sh\n#SBATCH --bogus\n"}, "--bogus"),
        ({"batch": "#!/bin/sh\r\n"}, "DOS line ends"),
        ({"batch": ""}, "empty"),
        ({"batch": "#!/bin/sh\n", "workingDirectory": "/proc/mine"}, "cannot be made"),
        ({"batch": "#!/bin/sh\n", "options": ["--comment=mine"]}, "--comment"),
    ],
)
async def test_what_cannot_become_a_job_is_refused_in_words(
    manager: SlurmManager, fields: dict[str, object], words: str
) -> None:
    outcome = await manager.submit(ALICE, submission(**fields))
    assert isinstance(outcome, SubmitRejected)
    assert words in outcome.detail


async def test_who_has_no_association_hears_slurms_own_words(manager: SlurmManager) -> None:
    outcome = await manager.submit(CAROL, submission(batch="#!/bin/sh\n"))
    assert isinstance(outcome, SubmitRejected)
    assert "Invalid account" in outcome.detail


async def test_a_directory_that_cannot_be_entered_is_slurms_own_signal(
    manager: SlurmManager, login: Host
) -> None:
    job = await submit(manager, batch="#!/bin/sh\n", hold=True)
    login.run("chmod", "000", str(job.accepted.working_directory))
    await manager.act(job.handle, JobAction.RELEASE)
    end = await job.ended()
    assert (end.state, end.exit_code, end.signal) == ("FAILED", None, 53)


async def test_a_check_says_whether_and_when(manager: SlurmManager) -> None:
    good = await manager.check(ALICE, submission(batch="#!/bin/sh\n"))
    assert good.valid
    assert good.would_start_at is not None
    assert abs(good.would_start_at - datetime.now(UTC)) < timedelta(days=30)
    bad = await manager.check(ALICE, submission(batch="#!/bin/sh\n", partition="nope"))
    assert (bad.valid, "invalid partition" in bad.detail) == (False, True)


async def test_no_submit_is_under_way_once_it_is_answered(manager: SlurmManager) -> None:
    job = await submit(manager, batch="#!/bin/sh\n", hold=True)
    assert not await manager.submitting(ALICE, job.submission.mark)
    await manager.act(job.handle, JobAction.CANCEL)


async def test_the_same_submission_twice_is_one_job(manager: SlurmManager) -> None:
    job = await submit(manager, batch="#!/bin/sh\n", hold=True)
    again = await manager.submit(ALICE, job.submission)
    assert isinstance(again, SubmitAccepted)
    assert again.job_id == job.id
    await manager.act(job.handle, JobAction.CANCEL)


async def test_a_submission_that_was_refused_may_be_tried_again(manager: SlurmManager, login: Host) -> None:
    ready = submission(batch="#!/bin/sh\n", partition="GPU_big")
    login.run("scontrol", "update", "partitionname=GPU_big", "state=drain")
    try:
        assert not isinstance(await manager.submit(ALICE, ready), SubmitAccepted)
    finally:
        login.run("scontrol", "update", "partitionname=GPU_big", "state=up")
    assert isinstance(await manager.submit(ALICE, ready), SubmitAccepted)


# ------------------------------------------------------------------------------------------ acts
async def test_hold_release_signal_and_cancel_are_read_back(manager: SlurmManager, login: Host) -> None:
    script = "#!/bin/sh\ntrap 'echo got it' USR1\necho ready\nwhile :; do sleep 0.2; done\n"
    job = await submit(manager, batch=script, hold=True, begin="now+1hour")
    assert (await manager.act(job.handle, JobAction.RELEASE)).done
    assert (await manager.act(job.handle, JobAction.HOLD)).done
    assert (await job.until(lambda seen: seen.reason == "JobHeldUser")).state == "PENDING"
    assert (await manager.act(job.handle, JobAction.RELEASE)).done
    login.run("scontrol", "update", f"JobId={job.id}", "StartTime=now", user="alice")
    path = f"{job.accepted.working_directory}/slurm-{job.id}.out"
    await job.until(lambda _: "ready" in login.run("cat", path, check=False).stdout)
    assert (await manager.act(job.handle, JobAction.SIGNAL, signal="SIGUSR1")).done
    await job.until(lambda _: "got it" in login.run("cat", path).stdout)
    assert (await manager.act(job.handle, JobAction.CANCEL)).done
    assert (await job.ended()).state == "CANCELLED"
    again = await manager.act(job.handle, JobAction.CANCEL)
    assert (again.done, "already ended" in again.detail) == (True, True)


async def test_a_stranger_is_never_touched(manager: SlurmManager) -> None:
    job = await submit(manager, batch="#!/bin/sh\nsleep 600\n", hold=True)
    for handle in (
        JobHandle(job.id, "rb1.another", job.submission.job_name, ALICE),
        JobHandle(job.id, job.submission.mark, job.submission.job_name, BOB),
        JobHandle("999999999", job.submission.mark, job.submission.job_name, ALICE),
    ):
        outcome = await manager.act(handle, JobAction.CANCEL)
        assert (outcome.done, outcome.gone) == (False, True)
    assert (await job.until(lambda _: True)).state == "PENDING"
    assert (await manager.act(job.handle, JobAction.CANCEL)).done


async def test_until_the_next_poll_an_id_that_was_given_out_again_leads_into_no_other_job(
    manager: SlurmManager, login: Host
) -> None:
    """What red-box asks for by the id of a job whose end it has not seen, which is bob's now."""
    job = await submit(manager, BOB, batch="#!/bin/sh\nexec sleep 600\n")
    await job.until(lambda job: job.state == "RUNNING")
    await manager.check_session_job(BOB, job.id, job.submission.mark)
    for user, mark in ((ALICE, job.submission.mark), (BOB, "rb1.gone")):
        with pytest.raises(WorkloadManagerError, match="is not this job any more"):
            await manager.check_session_job(user, job.id, mark)
    argv = await manager.session_argv(ALICE, job.id, "", "rbx-1", ["id"])
    entered = login.run(*argv, user="alice", check=False)
    assert entered.returncode != 0, entered.stdout
    async with asyncio.timeout(PATIENCE_S):
        while not await manager.usage(BOB, [job.handle]):  # noqa: ASYNC110 (Slurm measures now and then)
            await asyncio.sleep(0.3)
    assert not await manager.usage(BOB, [replace(job.handle, mark="rb1.gone")])
    with suppress(WorkloadManagerError):  # Slurm refuses it, or shows nothing
        assert not await manager.usage(ALICE, [replace(job.handle, user=ALICE)])
    assert (await manager.act(job.handle, JobAction.CANCEL)).done


async def test_a_requeued_job_runs_again_as_the_same_job(manager: SlurmManager) -> None:
    job = await submit(manager, batch="#!/bin/sh\nsleep 600\n")
    await job.until(lambda seen: seen.state == "RUNNING")
    assert (await manager.act(job.handle, JobAction.REQUEUE)).done
    again = await job.until(lambda seen: seen.restarts == 1)
    assert again.mark == job.submission.mark
    assert (await manager.act(job.handle, JobAction.CANCEL)).done


# ------------------------------------------------------------------------------------------ states
@pytest.mark.parametrize(
    ("script", "state", "code", "signal"),
    [
        ("exit 0", "COMPLETED", 0, None),
        ("exit 1", "FAILED", 1, None),
        ("kill -9 $$", "FAILED", None, 9),
        ("kill -15 $$", "FAILED", None, 15),
        ("head -c 600m /dev/zero | tail -n 1 | wc -c", "OUT_OF_MEMORY", None, None),
    ],
)
async def test_each_end_in_the_queue_and_in_the_accounting(
    manager: SlurmManager, script: str, state: str, code: int | None, signal: int | None
) -> None:
    job = await submit(manager, batch=f"#!/bin/sh\n#SBATCH --mem=64\n{script}\n")
    end = await job.ended()
    assert (end.state, end.exit_code, end.signal) == (state, code, signal)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            rows = (await manager.history([job.id])).jobs
            # 22.05 shows rows that are written by half: ended already, and of nobody yet.
            if rows and has_ended(rows[0].state) and rows[0].mark:
                break
            await asyncio.sleep(0.5)
    assert (rows[0].state, rows[0].exit_code, rows[0].signal) == (state, code, signal)
    assert (rows[0].mark, rows[0].uid) == (job.submission.mark, ALICE.uid)
    of_alice = await manager.history_of(ALICE, since=datetime.now(UTC) - timedelta(minutes=10))
    assert job.id in {seen.job_id for seen in of_alice.jobs if seen.mark == job.submission.mark}


async def test_an_array_is_one_job_whose_tasks_are_told_apart(manager: SlurmManager) -> None:
    job = await submit(manager, batch="#!/bin/sh\nexit $SLURM_ARRAY_TASK_ID\n", array="0-2")
    end = await job.ended()
    assert [(task.index, task.exit_code) for task in end.tasks] == [(0, 0), (1, 1), (2, 2)]
    assert (end.state, end.array_size) == ("FAILED", 3)


async def test_cancelling_an_array_cancels_what_runs_and_what_waits(manager: SlurmManager) -> None:
    job = await submit(manager, batch="#!/bin/sh\nsleep 600\n", array="0-20%2")
    await job.until(lambda seen: seen.state == "RUNNING")
    assert (await manager.act(job.handle, JobAction.CANCEL)).done
    end = await job.ended()
    assert end.state == "CANCELLED"  # of those that waited Slurm may forget how many they were
    assert {task.state for task in end.tasks} == {"CANCELLED"}
    assert end.pending_tasks == 0


async def test_a_het_job_is_submitted_watched_and_cancelled_by_its_leader(manager: SlurmManager) -> None:
    script = "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\nsleep 600\n"
    job = await submit(manager, batch=script, env={"A": "1"})
    poll = await manager.poll(users=[ALICE])
    second = str(int(job.id) + 1)
    assert [seen.mark for seen in poll.jobs if seen.job_id in (job.id, second)] == [job.submission.mark]
    assert (await manager.act(job.handle, JobAction.CANCEL)).done
    assert (await job.ended()).state == "CANCELLED"
    assert not [seen for seen in (await manager.find_live([second])).jobs if not has_ended(seen.state)]


async def test_what_waits_for_nodes_is_expected_when_and_where_slurm_plans_it(
    manager: SlurmManager, login: Host
) -> None:
    """Behind a job on all nodes: a job on two of them, and a het job whose second half comes after it."""
    batch = "#!/bin/sh\n#SBATCH --exclusive\nsleep 600\n"
    halves = "#SBATCH -N1 -t1 --exclusive\n#SBATCH hetjob\n#SBATCH -N2 -t1 --exclusive\n"
    whole = await submit(manager, batch=batch, resources={"nodes": 3, "time": "5"})
    try:
        running = await whole.until(lambda seen: seen.state == "RUNNING")
        assert running.started_at is not None
        assert await manager.expected_start(whole.handle) is None
        two_nodes = await submit(manager, batch=batch, resources={"nodes": 2, "time": "1"})
        het = await submit(manager, batch=f"#!/bin/sh\n{halves}sleep 600\n")
        first, second = [await planned(manager, login, job) for job in (two_nodes, het)]
    finally:  # it holds every node
        login.run("scancel", "--user=alice")
    assert running.started_at + timedelta(minutes=5) <= first[0] < second[0]
    assert (len(first[1]), second[1]) == (2, {"n1", "n2", "n3"})


async def planned(manager: SlurmManager, login: Host, job: Submitted) -> tuple[datetime, set[str]]:
    """When and on which nodes it would start, once Slurm's scheduler, at work each half minute, knows it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            expected = await manager.expected_start(job.handle)
            if expected and expected.starts_at:
                names = login.run("scontrol", "show", "hostnames", expected.nodes or "").stdout.split()
                return expected.starts_at, set(names)
            await asyncio.sleep(0.5)


async def test_a_glance_differs_once_a_job_or_a_task_has_another_state(manager: SlurmManager) -> None:
    job = await submit(manager, batch="#!/bin/sh\nsleep 600\n", array="0-1%1")
    await job.until(lambda seen: seen.state == "RUNNING")
    running = await manager.probe([job.id])
    if running is None:
        pytest.skip("this squeue has no --only-job-state")
    other = await submit(manager, batch="#!/bin/sh\nsleep 600\n", hold=True)
    assert await manager.probe([job.id]) == running
    for handle in (job.handle, other.handle):
        assert (await manager.act(handle, JobAction.CANCEL)).done
    await job.ended()
    assert await manager.probe([job.id]) != running


async def test_bob_cannot_forge_a_job_of_alices(manager: SlurmManager, login: Host) -> None:
    mine = await submit(manager, batch="#!/bin/sh\nsleep 600\n", hold=True)
    forged = f"x\n{mine.id}|2001|COMPLETED|~\x1b[2J\n{mine.submission.mark}"
    argv = ["sbatch", "--hold", f"--job-name={forged}", f"--comment={mine.submission.mark}"]
    other = login.run(*argv, "--parsable", "--wrap", forged, user="bob").stdout.strip().split(";")[0]
    poll = await manager.poll(users=[ALICE, BOB])
    assert poll.complete
    assert {seen.job_id: seen.uid for seen in poll.jobs if seen.mark == mine.submission.mark} == {
        mine.id: ALICE.uid,
        other: BOB.uid,
    }
    history = await manager.history([mine.id, other])
    assert history.complete
    assert not [seen for seen in history.jobs if seen.job_id == mine.id and seen.uid != ALICE.uid]
    login.run("scancel", other)
    assert (await manager.act(mine.handle, JobAction.CANCEL)).done


# ------------------------------------------------------------------------------------------ the cluster
async def test_the_cluster_its_partitions_and_accounts(manager: SlurmManager) -> None:
    cluster = await manager.cluster()
    assert (cluster.name, cluster.workload_manager, cluster.accounting) == (CLUSTER, "slurm", True)
    assert sum(cluster.nodes.values()) == 3
    partitions = {partition.name: partition for partition in await manager.partitions()}
    assert set(partitions) == {"debug", "long", "GPU_big"}
    assert (partitions["debug"].total.cpus, partitions["debug"].limits.max_time_s) == (12, 1800)
    assert partitions["long"].limits.max_time_s is None
    assert (partitions["GPU_big"].total.gpus, "a100" in partitions["GPU_big"].features) == (2, True)
    assert set(await manager.associations(ALICE)) == {"physics", "biology"}
    assert await manager.associations(CAROL) == {}
