"""A Slurm cluster of two manifests: its jobs, its nodes, its configuration, and what is killed under it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.delivery import NAMESPACE as OPERATOR_NAMESPACE
from tests.e2e.harness.hosted_slurm import (
    CLUSTER,
    NAMESPACE,
    OPERATOR,
    PROTECTED,
    ROLE,
    SLURMCTLD,
    WORKERS,
    HostedSlurm,
    hosted_slurm,
    hosting,
    kill_container,
)
from tests.e2e.harness.kubernetes import Object
from tests.e2e.harness.supervised_slurm import KILL_SLURMD
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly(slurm="26.05"), pytest.mark.timeout(600)]
DEVICES = "devices"
UNTIL_RELEASED = "until [ -e /tmp/go-$SLURM_JOB_ID ]; do sleep 0.2; done"


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def slurm(bed: Bed, request: pytest.FixtureRequest) -> Iterator[HostedSlurm]:
    with hosting(bed, request.param) as kubernetes, hosted_slurm(bed, kubernetes, 2) as slurm:
        yield slurm


@pytest.fixture
def two_idle(slurm: HostedSlurm) -> HostedSlurm:
    """Whatever a test before this one left."""
    slurm.scale(2)
    slurm.has_idle(2)
    return slurm


@pytest.fixture
def job(two_idle: HostedSlurm) -> Iterator[str]:
    """A job that runs until it may end; it must have run once, and well."""
    job = two_idle.submit(UNTIL_RELEASED)
    worker = two_idle.reaches(job, "RUNNING")["NodeList"]
    yield job
    if worker in two_idle.workers():
        two_idle.run("touch", f"/tmp/go-{job}", pod=worker)
    fields = two_idle.reaches(job, "COMPLETED")
    assert (fields["Restarts"], fields["ExitCode"]) == ("0", "0:0")


def worker_of(slurm: HostedSlurm, job: str) -> str:
    return slurm.job(job)["NodeList"]


def test_a_job_runs_on_all_nodes(two_idle: HostedSlurm) -> None:
    job = two_idle.submit("srun hostname", "--nodes=2", "--output=/tmp/hosts")
    first = two_idle.reaches(job, "COMPLETED")["BatchHost"]
    assert sorted(two_idle.run("cat", "/tmp/hosts", pod=first).split()) == sorted(two_idle.workers())


def test_a_scale_in_waits_for_the_job(two_idle: HostedSlurm, job: str) -> None:
    busy = worker_of(two_idle, job)
    two_idle.scale(0)
    eventually(lambda: list(two_idle.workers()) == [busy], what="the end of the idle worker")
    eventually(lambda: two_idle.job(job)["JobState"] == "RUNNING")
    assert two_idle.workers()[busy]["metadata"]["labels"][PROTECTED] == "true"
    two_idle.run("touch", f"/tmp/go-{job}", pod=busy)
    eventually(lambda: not two_idle.workers(), what="the end of the last worker")


@pytest.mark.nightly
def test_a_worker_with_a_job_is_deleted_by_nobody(two_idle: HostedSlurm, job: str) -> None:
    with pytest.raises(BedError, match="may have jobs"):
        two_idle.kubernetes("delete", "pod", worker_of(two_idle, job), f"--namespace={NAMESPACE}")
    with pytest.raises(BedError, match="has workers of Slurm"):
        two_idle.kubernetes("delete", "namespace", NAMESPACE)


@pytest.mark.nightly
def test_a_configuration_is_applied_under_a_job(two_idle: HostedSlurm, job: str) -> None:
    two_idle.change("controller", CLUSTER, {"extraConf": "SchedulerTimeSlice=25"})
    shown = "SchedulerTimeSlice = 25 sec"
    eventually(lambda: shown in " ".join(two_idle.run("scontrol", "show", "config").split()), what=shown)
    eventually(two_idle.is_ready, what="Ready")
    assert two_idle.condition("controller", CLUSTER, "ConfigurationTried")[0] == "True"
    eventually(lambda: not trials(two_idle), what="the end of the trial's pod")
    assert two_idle.job(job)["JobState"] == "RUNNING"
    assert two_idle.restarts(SLURMCTLD) == 0


def trials(slurm: HostedSlurm) -> list[Object]:
    return slurm.kubernetes.list("pod", NAMESPACE, labels="slurm.redbox.dev/role=trial")


def nodes(slurm: HostedSlurm) -> tuple[int, int]:
    """Idle, and with a job."""
    status = slurm.status("nodeset", WORKERS)
    return status.get("slurmIdle", 0), status.get("slurmAllocated", 0)


NONSENSE = {"extraConf": "SelectTypeParameters=CR_Nonsense"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(NONSENSE, "slurmctld: error: Bad SelectTypeParameter: CR_Nonsense", id="slurmctld"),
        pytest.param(
            {**NONSENSE, "redbox": {"trial": False}},
            "CR_Nonsense",
            id="without-a-trial",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            {"configFileRefs": [{"name": DEVICES}]},
            "slurmd: error: Parsing error at unrecognized key: Fool",
            id="slurmd",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_refused_configuration_harms_nothing_and_the_next_one_is_applied(
    two_idle: HostedSlurm, job: str, spec: Object, words: str
) -> None:
    """slurmctld takes a gres.conf that each slurmd ends of."""
    data = {"gres.conf": "Name=gpu Fool=x\n"}
    devices = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": DEVICES, "namespace": NAMESPACE}}
    two_idle.kubernetes.apply(json.dumps({**devices, "data": data}))
    two_idle.change("controller", CLUSTER, spec)
    eventually(lambda: words in two_idle.condition("controller", CLUSTER, "Degraded")[1], what="the refusal")
    two_idle.scale(3)  # a slurmd that starts now gets the files that slurmctld runs with
    eventually(lambda: nodes(two_idle) == (2, 1), what="a third node")
    two_idle.change(
        "controller", CLUSTER, {"extraConf": "", "configFileRefs": None, "redbox": {"trial": True}}
    )
    eventually(two_idle.is_ready, what="Ready")
    assert two_idle.job(job)["JobState"] == "RUNNING"
    assert two_idle.restarts(SLURMCTLD) == 0


@pytest.mark.nightly
def test_a_killed_slurmd_loses_no_job(two_idle: HostedSlurm, job: str) -> None:
    busy = worker_of(two_idle, job)
    before = two_idle.process("slurmd", busy)
    two_idle.run("sh", "-c", KILL_SLURMD, pod=busy)
    eventually(lambda: two_idle.process("slurmd", busy) not in ("", before), what="another slurmd")
    in_service = "ALLOCATED+DYNAMIC_NORM"
    eventually(lambda: two_idle.node(busy)["State"] == in_service, what="its node in service")
    assert two_idle.restarts(busy) == 0


@pytest.mark.nightly
def test_a_worker_whose_container_ends_is_back_whatever_reason_its_node_has_kept(
    bed: Bed, two_idle: HostedSlurm
) -> None:
    """Slurm 24.11 without accounting keeps that of a drain that is over, and gives it to the reboot."""
    name, pod = next(iter(two_idle.workers().items()))
    update = ("scontrol", "update", f"nodename={name}")
    two_idle.run(*update, "state=drain", "reason=disk")
    drained = lambda: two_idle.status("nodeset", WORKERS).get("slurmDrain") == 1  # noqa: E731
    eventually(drained, what="the drain in the status")
    two_idle.run(*update, "state=resume")
    two_idle.has_idle(2)
    before = two_idle.node(name)["SlurmdStartTime"]
    kill_container(bed, pod)

    def is_back() -> bool:
        node = two_idle.node(name)
        return node["SlurmdStartTime"] != before and node["State"] == "IDLE+DYNAMIC_NORM"

    eventually(is_back, what="its node in service with another slurmd")


@pytest.mark.nightly
def test_a_killed_slurmrestd_is_only_a_pause(two_idle: HostedSlurm, job: str) -> None:
    (before,) = two_idle.pods(f"{ROLE}=control")
    two_idle.kubernetes.delete("pod", before, namespace=NAMESPACE, gracePeriodSeconds=0)
    busy = worker_of(two_idle, job)
    two_idle.scale(0)
    eventually(lambda: list(two_idle.workers()) == [busy], what="the end of the idle worker")
    assert two_idle.job(job)["JobState"] == "RUNNING"
    assert before not in two_idle.pods(f"{ROLE}=control")


@pytest.mark.nightly
def test_a_killed_slurmctld_loses_no_job(two_idle: HostedSlurm, job: str) -> None:
    before = two_idle.kubernetes.get("pod", SLURMCTLD, NAMESPACE)["metadata"]["uid"]
    two_idle.kubernetes.delete("pod", SLURMCTLD, namespace=NAMESPACE, gracePeriodSeconds=0)

    def is_another() -> bool:
        found = two_idle.kubernetes.get("pod", SLURMCTLD, NAMESPACE)
        ready = [one["ready"] for one in found.get("status", {}).get("containerStatuses", [])]
        return bool(found) and found["metadata"]["uid"] != before and ready == [True]

    eventually(is_another, what="another slurmctld")
    eventually(two_idle.is_ready, what="Ready")
    assert two_idle.job(job)["JobState"] == "RUNNING"


@pytest.mark.nightly
def test_an_operator_that_is_killed_goes_on_where_it_was(two_idle: HostedSlurm, job: str) -> None:
    busy = worker_of(two_idle, job)
    two_idle.scale(0)
    (operator,) = two_idle.kubernetes.list("pod", OPERATOR_NAMESPACE, labels=OPERATOR)
    name = operator["metadata"]["name"]
    two_idle.kubernetes.delete("pod", name, namespace=OPERATOR_NAMESPACE, gracePeriodSeconds=0)
    eventually(lambda: list(two_idle.workers()) == [busy], what="the end of the idle worker")
    assert two_idle.job(job)["JobState"] == "RUNNING"


@pytest.mark.nightly
def test_each_selected_kubernetes_node_has_a_worker(two_idle: HostedSlurm) -> None:
    """It stays until its job has ended after its node is selected no more."""
    nodes = two_idle.kubernetes.list("node")
    machine = next(each["metadata"]["name"] for each in nodes if not each["spec"].get("taints"))
    label = "e2e.redbox.dev/worker"
    two_idle.kubernetes("label", "node", machine, f"{label}=yes", "--overwrite")
    try:
        selector = {"spec": {"nodeSelector": {label: "yes"}}}
        two_idle.change("nodeset", WORKERS, {"scalingMode": "DaemonSet", "template": selector})
        two_idle.has_idle(1)
        assert list(two_idle.workers()) == [machine]
        job = two_idle.submit("sleep 600")
        assert two_idle.reaches(job, "RUNNING")["NodeList"] == machine
        two_idle.kubernetes("label", "node", machine, f"{label}-")
        eventually(
            lambda: two_idle.status("nodeset", WORKERS).get("slurmDrain") == 1, what="the drain of its node"
        )
        assert two_idle.job(job)["JobState"] == "RUNNING"
        two_idle.run("scancel", job)
        eventually(lambda: not two_idle.workers(), what="the end of the worker")
    finally:
        two_idle.kubernetes("label", "node", machine, f"{label}-")
        two_idle.change("nodeset", WORKERS, {"scalingMode": "StatefulSet", "template": None})
