"""The operator's life on the bed: its own death, lost companions, suspension, retries, chains, deletions."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from redbox.server.certificates import make_authority
from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.delivery import NAMESPACE
from redbox_bed.hosts.host import Host
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, kill, new_name
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.usefixtures("delivery"), pytest.mark.nightly(delivery="Virtual")]
TICKS = "for i in $(seq 12); do echo tick $i; sleep 0.5; done"
TICKED = [f"tick {number}" for number in range(1, 13)]
WAITS = f"{TICKS}; until [ -e ~/$SLURM_JOB_NAME.end ]; do sleep 0.2; done; rm ~/$SLURM_JOB_NAME.end"
LONG = "sleep 600"


def ticks(job: Applied) -> list[str]:
    """Of its log, what the job itself has written."""
    return [line for line in job.log().splitlines() if line.startswith("tick")]


def let_end(job: Applied) -> None:
    """One that waits for that."""
    job.login.run("touch", f"/home/alice/{job.name}.end", user="alice")


def has_last_word(job: Applied) -> object:
    """Its companion has done its work, and the operator has noted that."""
    return job.until(lambda status: status.get("companion", {}).get("done"))


@pytest.fixture
def redbox_away(login: Host) -> Iterator[None]:
    """Red-box is killed, and back at the end whatever happened."""
    login.kill(login_node.SERVICE)
    yield
    login_node.start(login)


# ---------------------------------------------------------------------------------------------- its own death


def test_killed_in_the_middle_it_goes_on_with_the_same_jobs(bed: Bed, jobs: SlurmJobs) -> None:
    applied = [jobs.apply(TICKS) for _ in range(3)]
    kill(bed, "redbox-operator")
    applied += [jobs.apply(TICKS) for _ in range(3)]
    applied[0].reaches("Submitted", "Running", "Succeeded")
    kill(bed, "redbox-operator")
    for job in applied:
        status = job.reaches("Succeeded", "Failed")
        assert status["phase"] == "Succeeded", status
        job.has_in_slurm("COMPLETED")
        assert job.in_slurm()[0][0] == status["jobID"]
        has_last_word(job)
        assert ticks(job) == TICKED
    for job in applied:
        told = job.events()
        assert told.count("Submitted") <= 1
        assert told.count("Succeeded") <= 1


def test_only_one_operator_holds_the_lease(jobs: SlurmJobs) -> None:
    get = ("get", f"--namespace={NAMESPACE}", "--output=json")

    def held_by_one_that_runs() -> bool:
        lease = json.loads(jobs.kubectl(*get, "lease", "redbox-operator"))
        pods = json.loads(jobs.kubectl(*get, "pods", "--selector=app.kubernetes.io/name=redbox-operator"))
        return lease["spec"]["holderIdentity"] in {pod["metadata"]["name"] for pod in pods["items"]}

    eventually(held_by_one_that_runs)


# ---------------------------------------------------------------------------------------------- companions


def test_a_companion_that_is_deleted_is_made_again_and_the_log_is_whole(jobs: SlurmJobs) -> None:
    job = jobs.apply(WAITS)
    job.reaches("Running")
    first = job.status["companion"]["uid"]
    for _ in range(2):
        job("delete", "pod", job.pod, "--grace-period=0", "--force")
        eventually(lambda: job.get("pod", job.pod), what="another companion")
    let_end(job)
    status = job.reaches("Succeeded", "Failed")
    assert status["phase"] == "Succeeded"
    has_last_word(job)
    assert job.status["companion"]["uid"] != first
    assert ticks(job) == TICKED
    eventually(lambda: len(job.in_slurm()) == 1)


def test_a_companion_trusts_whom_its_slurmcluster_trusts_now(jobs: SlurmJobs, delivery: str) -> None:
    cluster = json.loads(jobs.kubectl("get", "slurmcluster", "hpc1", "--output=json"))
    bundle = cluster["spec"]["caBundle"]
    another = make_authority("another", datetime.now(UTC)).certificate
    job = jobs.apply(WAITS)
    job.reaches("Running")
    first = job.status["companion"]["uid"]
    try:
        trust(jobs, base64.b64encode(another + base64.b64decode(bundle)).decode())
        if delivery == "Container":
            eventually(lambda: job.status["companion"]["uid"] != first, what="another companion")
        let_end(job)
        job.reaches("Succeeded")
        has_last_word(job)
        assert (job.status["companion"]["uid"] == first) == (delivery == "Virtual")
        assert ticks(job) == TICKED
        eventually(lambda: len(job.in_slurm()) == 1)
    finally:
        trust(jobs, bundle)


def trust(jobs: SlurmJobs, bundle: str) -> None:
    patch = json.dumps({"spec": {"caBundle": bundle}})
    jobs.kubectl("patch", "slurmcluster", "hpc1", "--type=merge", f"--patch={patch}")


def test_a_companion_that_is_deleted_after_its_last_word_stays_away(jobs: SlurmJobs) -> None:
    job = jobs.apply("true")
    job.reaches("Succeeded")
    has_last_word(job)
    job("delete", "pod", job.pod)
    jobs.apply("true").reaches("Succeeded")  # the operator has looked at much since then
    assert not job.get("pod", job.pod)


def test_a_pod_that_somebody_else_made_is_left_alone_and_named(jobs: SlurmJobs) -> None:
    name = new_name()
    theirs = (f"{name}-job", "--namespace=alice")
    jobs.kubectl("run", *theirs, "--image=bed.local/pause:1", "--restart=Never")
    try:
        job = jobs.apply("true", name=name)
        status = job.says("Submitted", "NameTaken")
        assert job.pod in status["message"]
        assert "delete it" in status["message"]
        eventually(lambda: job.events() == ["NameTaken"], what="its event")
    finally:
        jobs.kubectl("delete", "pod", *theirs, "--grace-period=0", "--force")
    job.reaches("Succeeded")


# ---------------------------------------------------------------------------------------------- attempts


def test_a_job_that_fails_is_tried_again_as_a_new_job(jobs: SlurmJobs) -> None:
    job = jobs.apply("exit 4", backoffLimit=1)
    status = job.reaches("Failed")
    assert (status["attempts"], status["exitCode"]) == (2, 4)
    job.has_in_slurm("FAILED", "FAILED")
    assert job.get("pod", job.pod)
    assert job.get("pod", f"{job.pod}-2")
    eventually(lambda: "Retrying" in job.events(), what="its event")


def test_a_job_that_runs_is_cancelled_by_suspend_and_starts_anew_when_resumed(jobs: SlurmJobs) -> None:
    job = jobs.apply(LONG)
    first = job.reaches("Running")["jobID"]
    job.change(suspend=True)
    job.comes_to(reason="Suspended")
    eventually(lambda: job.in_slurm() == [(first, "CANCELLED")])
    assert job.conditions["Finished"] == ("False", "Unfinished")
    job.change(suspend=False)
    second = job.starts()
    assert second["jobID"] != first
    assert (second["attempts"], second["resumed"]) == (2, 1)


def test_a_suspended_job_waits_held_in_slurm_until_it_is_resumed(jobs: SlurmJobs) -> None:
    job = jobs.apply("true", suspend=True)
    status = job.until(lambda status: status.get("jobID"))
    assert status["phase"] == "Suspended"
    job.change(suspend=False)
    assert job.reaches("Succeeded")["attempts"] == 1
    eventually(lambda: {"Held", "Released"} <= set(job.events()), what="its events")


def test_a_held_job_is_released(jobs: SlurmJobs) -> None:
    job = jobs.apply("true", hold=True)
    job.comes_to(reason="JobHeldUser")
    job.change(hold=False)
    assert job.reaches("Succeeded")["attempts"] == 1


# ---------------------------------------------------------------------------------------------- chains


def test_a_chain_runs_in_order_whatever_order_it_was_applied_in(jobs: SlurmJobs) -> None:
    names = [new_name() for _ in range(3)]
    third = jobs.apply("true", name=names[2], dependsOn=[{"name": names[1]}])
    third.says("Submitted", "DependencyMissing")
    second = jobs.apply("true", name=names[1], dependsOn=[{"name": names[0]}])
    first = jobs.apply("sleep 3", name=names[0])
    ends = [job.reaches("Succeeded") for job in (first, second, third)]
    for before, after in itertools.pairwise(ends):
        assert before["endedAt"] <= after["startedAt"]


def test_what_depends_on_a_failure_says_that_it_can_never_start(jobs: SlurmJobs) -> None:
    first = jobs.apply("exit 1")
    first.reaches("Failed")
    second = jobs.apply("true", dependsOn=[{"name": first.name}])
    status = second.reaches("Failed")
    assert "can never start" in status["message"]
    eventually(lambda: second.events() == ["DependencyFailed"], what="its event")
    assert second.in_slurm() == []


# ---------------------------------------------------------------------------------------------- the end


def test_a_slurmjob_whose_time_is_over_is_gone_with_its_pod(jobs: SlurmJobs) -> None:
    job = jobs.apply("true", ttlSecondsAfterFinished=1)
    job.is_gone()
    eventually(lambda: not job.get("pod", job.pod), what="the pod's end")
    job.has_in_slurm("COMPLETED")


def test_with_red_box_away_a_deletion_waits_says_so_and_ends_after_its_return(
    jobs: SlurmJobs, login: Host
) -> None:
    job = jobs.apply(LONG)
    job_id = job.reaches("Running")["jobID"]
    login.kill(login_node.SERVICE)
    try:
        job.delete(wait=False)
        status = job.until(lambda status: "away" in status.get("message", ""))
        assert "redbox.dev/abandon" in status["message"]
    finally:
        login_node.start(login)
    job.is_gone()
    eventually(lambda: job.in_slurm() == [(job_id, "CANCELLED")])


def test_an_abandoned_slurmjob_goes_at_once_and_its_job_runs_on(
    jobs: SlurmJobs, login: Host, redbox_away: None
) -> None:
    del redbox_away
    job = jobs.apply(LONG)
    assert not job.until(bool).get("jobID")
    job.delete(wait=False)
    job.until(lambda status: "away" in status.get("message", ""))
    job.abandon()
    job.is_gone()
    assert login.running(login_node.SERVICE) is False


def test_a_namespace_full_of_running_jobs_goes_and_takes_them_along(jobs: SlurmJobs, login: Host) -> None:
    name = f"alice-{uuid4().hex[:6]}"
    login_node.introduce(
        login,
        name="hpc1",
        cluster="bed",
        issuer=jobs.kubectl.issuer(),
        keys=jobs.kubectl.keys(),
        rules=[login_node.Rule(namespace=name, user="alice")],
    )
    login_node.restart(login)
    jobs.kubectl("create", "namespace", name)
    applied = [jobs.apply(LONG, namespace=name) for _ in range(8)]
    for job in applied:
        job.reaches("Running", "Submitted")
    jobs.kubectl("delete", "namespace", name, "--timeout=150s")
    for job in applied:
        job.has_in_slurm("CANCELLED")
