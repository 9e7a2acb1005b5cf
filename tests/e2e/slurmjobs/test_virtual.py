"""SlurmJobs on virtual nodes with everything installed by the chart: the same life as with containers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.delivery import NAMESPACE
from tests.e2e.harness.accounting import SINCE
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs
from tests.e2e.harness.virtual_chart import virtual_delivery, with_containers
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(300)
JOBS_UNDER_KILL = 12


@pytest.fixture(scope="module")
def virtual(bed: Bed) -> Iterator[None]:
    SlurmJobs.on(bed)
    with virtual_delivery(bed):
        yield


@pytest.fixture
def jobs(bed: Bed, virtual: None) -> Iterator[SlurmJobs]:
    assert virtual is None
    jobs = SlurmJobs.on(bed)
    yield jobs
    jobs.clean()


def node_of(job: Applied) -> str:
    return str(job.get("pod", job.pod)["spec"]["nodeName"])


def in_slurm(bed: Bed, job: Applied) -> list[str]:
    row = ("sacct", SINCE, "-X", "-n", "-P", "-o", "JobID", f"--name={job.name}")
    return bed.host("login").run(*row, user=job.namespace).stdout.split()


def test_a_slurmjob_runs_without_any_container(bed: Bed, jobs: SlurmJobs) -> None:
    job = jobs.apply("echo out; echo err >&2; exit 3")
    status = job.finishes()
    assert (status["phase"], status["exitCode"], status["user"]) == ("Failed", 3, "alice")
    assert node_of(job) == "hpc1.debug"
    eventually(lambda: sorted(job("logs", job.pod).splitlines()) == ["err", "out"])
    eventually(lambda: in_slurm(bed, job) == [status["jobID"]])


def test_a_slurmjob_of_a_partition_is_on_that_partitions_node(jobs: SlurmJobs) -> None:
    job = jobs.apply("true", partition="GPU_big")
    assert job.finishes()["phase"] == "Succeeded"
    assert node_of(job).startswith("hpc1.gpu-big")


def test_a_job_that_fits_nowhere_stays_pending_and_says_so(jobs: SlurmJobs) -> None:
    job = jobs.apply("true", partition="debug", resources={"time": "12:00:00"})
    conditions = eventually(
        lambda: [
            one
            for one in job.get("pod", job.pod).get("status", {}).get("conditions", [])
            if one.get("reason") == "Unschedulable"
        ]
    )
    assert "didn't match Pod's node affinity" in conditions[0]["message"]
    status = job.comes_to(reason="Unschedulable")
    assert (
        "redbox.dev/partition=debug, debug.hpc1.redbox.dev/max-time-s of 43200 or more" in status["message"]
    )


def test_deleting_a_slurmjob_cancels_its_job(bed: Bed, jobs: SlurmJobs) -> None:
    job = jobs.apply("sleep 600")
    job_id = job.starts()["jobID"]
    job.delete()
    state = ("sacct", "-X", "-n", "-P", "-o", "State", "-j", job_id)
    eventually(lambda: bed.host("login").run(*state).stdout.startswith("CANCELLED"))


def test_values_of_secrets_come_by_a_pod_on_a_real_node(jobs: SlurmJobs) -> None:
    jobs.kubectl(*("create", "secret", "generic", "virtual", "--namespace=alice", "--from-literal=word=moo"))
    try:
        source = {"secretKeyRef": {"name": "virtual", "key": "word"}}
        job = jobs.apply("echo the word is $WORD", env=[{"name": "WORD", "valueFrom": source}])
        assert job.finishes()["phase"] == "Succeeded"
        eventually(lambda: job("logs", job.pod) == "the word is moo\n")
        assert node_of(job).startswith("hpc1.")
    finally:
        jobs.kubectl("delete", "secret", "virtual", "--namespace=alice")


def test_a_submitter_that_is_lost_before_it_could_submit_is_made_again(jobs: SlurmJobs) -> None:
    source = {"secretKeyRef": {"name": "late", "key": "word"}}
    job = jobs.apply("[ $WORD = moo ]", env=[{"name": "WORD", "valueFrom": source}])
    job.comes_to(reason="CompanionNotStarted")
    job("delete", "pod", f"{job.name}-submit", "--timeout=60s")
    job("create", "secret", "generic", "late", "--from-literal=word=moo")
    try:
        assert job.finishes()["phase"] == "Succeeded"
    finally:
        job("delete", "secret", "late")


@pytest.fixture
def in_containers(jobs: SlurmJobs) -> Iterator[str]:
    with with_containers(jobs.kubectl) as name:
        yield name
        jobs.clean()


def test_an_arrays_log_is_the_same_as_with_containers(jobs: SlurmJobs, in_containers: str) -> None:
    script = "[ $SLURM_ARRAY_TASK_ID = 0 ] || echo task $SLURM_ARRAY_TASK_ID >&2; exit $SLURM_ARRAY_TASK_ID"
    beside, job = (jobs.apply(script, cluster=name, array="0-2%1") for name in (in_containers, "hpc1"))
    whole = beside.log()
    lines = [
        *("redbox: task 1: FAILED, exit code 1", "task 1", "redbox: task 2: FAILED, exit code 2", "task 2"),
        "redbox: task 0: COMPLETED",
    ]
    assert whole.splitlines() == lines
    job.finishes()
    assert (job("logs", job.pod), job("logs", job.pod, "--follow")) == (whole, whole)


def test_a_failed_attempt_is_tried_again_and_each_has_its_log(bed: Bed, jobs: SlurmJobs) -> None:
    job = jobs.apply("echo attempt; exit 1", backoffLimit=1)
    assert job.finishes()["phase"] == "Failed"
    eventually(lambda: len(in_slurm(bed, job)) == 2)
    assert job("logs", f"{job.pod}-2", "--previous") == "attempt\n"


def test_resourced_killed_under_load_submits_each_job_once(jobs: SlurmJobs) -> None:
    applied = [jobs.apply("echo done; exit 5") for _ in range(JOBS_UNDER_KILL)]
    selector = "--selector=app.kubernetes.io/name=redbox-resourced"
    jobs.kubectl("delete", "pod", f"--namespace={NAMESPACE}", selector, "--force", "--grace-period=0")
    for job in applied:
        assert job.finishes()["exitCode"] == 5
        job.has_in_slurm("FAILED")
