"""The operator's life on the bed: its own death, lost companions, suspension, retries, chains, deletions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from uuid import uuid4

import pytest

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.delivery import Kubernetes
from redbox_bed.host import Host
from tests.e2e import kubernetes_jobs
from tests.e2e.kubernetes_jobs import Tenant, eventually, kill_operator

login, kubectl, alice = kubernetes_jobs.login, kubernetes_jobs.kubectl, kubernetes_jobs.alice
TICKS = "#!/bin/sh\nfor i in $(seq 1 12); do echo tick $i; sleep 0.5; done\n"
LONG = "#!/bin/sh\nsleep 600\n"


@pytest.fixture
def redbox_away(login: Host) -> Iterator[None]:
    """Red-box is killed, and back at the end whatever happened."""
    login.kill(login_node.SERVICE)
    yield
    login_node.start(login)


# ---------------------------------------------------------------------------------------------- its own death


def test_killed_in_the_middle_it_goes_on_with_the_same_jobs(bed: Bed, alice: Tenant) -> None:
    jobs = [alice.apply(TICKS) for _ in range(3)]
    kill_operator(bed)
    jobs += [alice.apply(TICKS) for _ in range(3)]
    jobs[0].reaches("Submitted", "Running")
    kill_operator(bed)
    for job in jobs:
        status = job.reaches("Succeeded", "Failed")
        assert status["phase"] == "Succeeded", status
        assert job.in_slurm() == [(status["jobID"], "COMPLETED")]
        eventually(lambda job=job: job.status["companion"].get("done"), what="the companion's last word")  # type: ignore[misc]
        assert [line for line in job.logs() if line.startswith("tick")] == [f"tick {i}" for i in range(1, 13)]
    for job in jobs:
        told = job.events()
        assert told.count("Submitted") <= 1
        assert told.count("Succeeded") <= 1


def test_only_one_operator_holds_the_lease(kubectl: Kubernetes) -> None:
    lease = json.loads(kubectl("get", "lease", "redbox-operator", "-n=redbox-system", "-o=json"))
    pods = json.loads(
        kubectl("get", "pods", "-n=redbox-system", "-l=app.kubernetes.io/name=redbox-operator", "-o=json")
    )
    running = {pod["metadata"]["name"] for pod in pods["items"]}
    assert lease["spec"]["holderIdentity"] in running


# ---------------------------------------------------------------------------------------------- companions


def test_a_companion_that_is_deleted_is_made_again_and_the_log_is_whole(alice: Tenant) -> None:
    job = alice.apply(TICKS)
    job.reaches("Running")
    first = job.status["companion"]["uid"]
    for _ in range(2):
        alice.kubectl("delete", "pod", f"{job.name}-job", "-n=alice", "--grace-period=0", "--force")
        eventually(lambda: job.get("pod", f"{job.name}-job"), what="another companion")
    status = job.reaches("Succeeded", "Failed")
    assert status["phase"] == "Succeeded"
    done = eventually(lambda: one if (one := job.status["companion"]).get("done") else None)
    assert done["uid"] != first
    assert [line for line in job.logs() if line.startswith("tick")] == [f"tick {i}" for i in range(1, 13)]
    assert len(job.in_slurm()) == 1


def test_a_companion_that_is_deleted_after_its_last_word_stays_away(alice: Tenant) -> None:
    job = alice.apply()
    job.reaches("Succeeded")
    eventually(lambda: job.status["companion"].get("done"), what="the companion's last word")
    alice.kubectl("delete", "pod", f"{job.name}-job", "-n=alice")
    other = alice.apply()
    other.reaches("Succeeded")  # the operator has looked at much since then
    assert not job.get("pod", f"{job.name}-job")


def test_a_pod_that_somebody_else_made_is_left_alone_and_named(alice: Tenant) -> None:
    name = f"t-{uuid4().hex[:8]}"
    alice.kubectl("run", f"{name}-job", "-n=alice", "--image=bed.local/pause:1", "--restart=Never")
    try:
        job = alice.apply(name=name)
        status = job.says("Submitted", "NameTaken")
        assert f"{name}-job" in status["message"]
        assert "delete it" in status["message"]
        assert job.events() == ["NameTaken"]
    finally:
        alice.kubectl("delete", "pod", f"{name}-job", "-n=alice", "--grace-period=0", "--force")
    job.reaches("Succeeded")


# ---------------------------------------------------------------------------------------------- attempts


def test_a_job_that_fails_is_tried_again_as_a_new_job(alice: Tenant) -> None:
    job = alice.apply("#!/bin/sh\nexit 4\n", backoffLimit=1)
    status = job.reaches("Failed")
    assert (status["attempts"], status["exitCode"]) == (2, 4)
    assert [state for _, state in job.in_slurm()] == ["FAILED", "FAILED"]
    assert job.get("pod", f"{job.name}-job")
    assert job.get("pod", f"{job.name}-job-2")
    assert "Retrying" in job.events()


def test_a_job_that_runs_is_cancelled_by_suspend_and_starts_anew_when_resumed(alice: Tenant) -> None:
    job = alice.apply(LONG)
    first = job.reaches("Running")["jobID"]
    job.patch(suspend=True)
    eventually(lambda: job.status.get("reason") == "Suspended", what="suspension")
    assert job.in_slurm() == [(first, "CANCELLED")]
    assert job.conditions["Finished"] == ("False", "Unfinished")
    job.patch(suspend=False)
    second = eventually(lambda: one if (one := job.status)["phase"] == "Running" else None)
    assert second["jobID"] != first
    assert (second["attempts"], second["resumed"]) == (2, 1)


def test_a_suspended_job_waits_held_in_slurm_until_it_is_resumed(alice: Tenant) -> None:
    job = alice.apply(suspend=True)
    status = eventually(lambda: one if (one := job.status).get("jobID") else None)
    assert status["phase"] == "Suspended"
    job.patch(suspend=False)
    assert job.reaches("Succeeded")["attempts"] == 1
    assert {"Held", "Released"} <= set(job.events())


def test_a_held_job_is_released(alice: Tenant) -> None:
    job = alice.apply(hold=True)
    eventually(lambda: job.status.get("reason") == "JobHeldUser")
    job.patch(hold=False)
    assert job.reaches("Succeeded")["attempts"] == 1


# ---------------------------------------------------------------------------------------------- chains


def test_a_chain_runs_in_order_whatever_order_it_was_applied_in(alice: Tenant) -> None:
    names = [f"t-{uuid4().hex[:8]}" for _ in range(3)]
    third = alice.apply(name=names[2], dependsOn=[{"name": names[1]}])
    third.says("Submitted", "DependencyMissing")
    second = alice.apply(name=names[1], dependsOn=[{"name": names[0]}])
    first = alice.apply("#!/bin/sh\nsleep 3\n", name=names[0])
    ends = [job.reaches("Succeeded") for job in (first, second, third)]
    for before, after in itertools.pairwise(ends):
        assert before["endedAt"] <= after["startedAt"]


def test_what_depends_on_a_failure_says_that_it_can_never_start(alice: Tenant) -> None:
    first = alice.apply("#!/bin/sh\nexit 1\n")
    first.reaches("Failed")
    second = alice.apply(dependsOn=[{"name": first.name}])
    status = second.reaches("Failed")
    assert "can never start" in status["message"]
    assert second.events() == ["DependencyFailed"]
    assert second.in_slurm() == []


# ---------------------------------------------------------------------------------------------- the end


def test_a_slurmjob_whose_time_is_over_is_gone_with_its_pod(alice: Tenant) -> None:
    job = alice.apply(ttlSecondsAfterFinished=1)
    job.gone()
    eventually(lambda: not job.get("pod", f"{job.name}-job"), what="the pod's end")
    assert [state for _, state in job.in_slurm()] == ["COMPLETED"]


def test_with_red_box_away_a_deletion_waits_says_so_and_ends_after_its_return(
    alice: Tenant, login: Host
) -> None:
    job = alice.apply(LONG)
    job_id = job.reaches("Running")["jobID"]
    login.kill(login_node.SERVICE)
    try:
        job.delete(wait=False)
        status = eventually(lambda: one if "away" in (one := job.status).get("message", "") else None)
        assert "redbox.dev/abandon" in status["message"]
    finally:
        login_node.start(login)
    job.gone()
    assert job.in_slurm() == [(job_id, "CANCELLED")]


def test_an_abandoned_slurmjob_goes_at_once_and_its_job_runs_on(
    alice: Tenant, login: Host, redbox_away: None
) -> None:
    del redbox_away
    job = alice.apply(LONG)
    assert not job.status.get("jobID")
    job.delete(wait=False)
    eventually(lambda: "away" in job.status.get("message", ""), what="the word that it waits")
    alice.kubectl("annotate", "slurmjob", job.name, "-n=alice", "redbox.dev/abandon=true")
    job.gone(within_s=20)
    assert login.running(login_node.SERVICE) is False


def test_a_namespace_full_of_running_jobs_goes_and_takes_them_along(
    bed: Bed, kubectl: Kubernetes, login: Host
) -> None:
    name = f"alice-{uuid4().hex[:6]}"
    login_node.introduce(
        login,
        name="hpc1",
        cluster="bed",
        issuer=kubectl.issuer(),
        keys=kubectl.keys(),
        rules=[login_node.Rule(namespace=name, user="alice")],
    )
    login_node.restart(login)
    kubectl("create", "namespace", name)
    tenant = Tenant(kubectl, login, name)
    jobs = [tenant.apply(LONG) for _ in range(8)]
    for job in jobs:
        job.reaches("Running", "Submitted")
    kubectl("delete", "namespace", name, "--timeout=90s")
    for job in jobs:
        assert {state for _, state in job.in_slurm()} == {"CANCELLED"}
    del bed
