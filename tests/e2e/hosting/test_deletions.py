"""Whatever deletes pods in Kubernetes leaves a worker with a job alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from tests.e2e.harness.hosted_slurm import (
    NAMESPACE,
    SLURMCTLD,
    WORKERS,
    HostedSlurm,
    hosted_slurm,
    hosting,
)
from tests.e2e.harness.kubernetes import Object
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
OF_WORKERS = "slurm.redbox.dev/nodeset"
HERE = f"--namespace={NAMESPACE}"


@pytest.fixture(scope="module")
def slurm(bed: Bed) -> Iterator[HostedSlurm]:
    with hosting(bed, "26.05") as kubernetes, hosted_slurm(bed, kubernetes, 2) as slurm:
        yield slurm


@pytest.fixture
def busy(slurm: HostedSlurm) -> Iterator[Object]:
    """A worker with a job, which must run once, and well."""
    slurm.scale(2)
    slurm.has_idle(2)
    job = slurm.submit("until [ -e /tmp/go-$SLURM_JOB_ID ]; do sleep 0.2; done")
    worker = slurm.reaches(job, "RUNNING")["NodeList"]
    pod = slurm.workers()[worker]
    yield pod
    if slurm.job(job)["JobState"] == "RUNNING":
        after = slurm.kubernetes.get("pod", worker, NAMESPACE)
        assert after["metadata"]["uid"] == pod["metadata"]["uid"]
        slurm.run("touch", f"/tmp/go-{job}", pod=worker)
    fields = slurm.reaches(job, "COMPLETED")
    assert (fields["Restarts"], fields["ExitCode"]) == ("0", "0:0")


def name_of(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def stays(slurm: HostedSlurm, pod: Object) -> bool:
    found = slurm.workers().get(name_of(pod), {"metadata": {}})
    return bool(found["metadata"].get("uid") == pod["metadata"]["uid"])


@pytest.mark.parametrize(
    "how", [["--force", "--grace-period=0"], ["--cascade=foreground"], ["--cascade=orphan"], ["--now"]]
)
def test_kubectl_delete_is_refused(slurm: HostedSlurm, busy: Object, how: list[str]) -> None:
    with pytest.raises(BedError, match="may have jobs"):
        slurm.kubernetes(HERE, "delete", "pod", name_of(busy), *how)


def test_an_eviction_is_refused(slurm: HostedSlurm, busy: Object) -> None:
    metadata = {"name": name_of(busy), "namespace": NAMESPACE}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name_of(busy)}/eviction"
    with pytest.raises(BedError, match="disruption budget"):
        slurm.kubernetes("create", f"--raw={path}", "--filename=-", stdin=json.dumps(body))


def test_a_drain_of_the_machine_waits_for_the_job(slurm: HostedSlurm, busy: Object) -> None:
    node, chosen = busy["spec"]["nodeName"], ("--delete-emptydir-data", f"--pod-selector={OF_WORKERS}")
    try:
        with pytest.raises(BedError, match=r"timed? ?out|disruption budget"):
            slurm.kubernetes("drain", node, *chosen, "--timeout=10s")
    finally:
        slurm.kubernetes("uncordon", node)
    assert stays(slurm, busy)


def test_a_taint_evicts_no_worker_with_a_job(slurm: HostedSlurm, busy: Object) -> None:
    """The taint's controller says that it deletes the pod, and does not try again."""
    node, taint = busy["spec"]["nodeName"], "example.org/maintenance"
    slurm.kubernetes("taint", "node", node, f"{taint}=now:NoExecute")
    try:
        eventually(lambda: has_event(slurm, busy, "TaintManagerEviction"), what="the eviction")
        assert stays(slurm, busy)
    finally:
        slurm.kubernetes("taint", "node", node, f"{taint}-")
    eventually(lambda: has_slurmctld(slurm), what="a slurmctld, which the taint may have evicted")


def test_a_pod_of_a_higher_priority_preempts_no_worker_with_a_job(slurm: HostedSlurm, busy: Object) -> None:
    """It could only start on this node if no worker were there."""
    with preemptor(slurm, busy):
        eventually(lambda: is_disrupted(slurm, busy), what="the preemption")
        assert stays(slurm, busy)


def test_a_quota_ends_no_worker_and_is_named(slurm: HostedSlurm, busy: Object) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": NAMESPACE},
        "spec": {"hard": {"pods": "1"}},
    }
    slurm.kubernetes.apply(json.dumps(quota))
    slurm.scale(3)
    try:
        says = lambda: "exceeded quota" in slurm.condition("nodeset", WORKERS, "Degraded")[1]  # noqa: E731
        eventually(says, what="the quota in a condition")
        assert stays(slurm, busy)
    finally:
        slurm.kubernetes.delete("resourcequota", "few", namespace=NAMESPACE)
    eventually(lambda: len(slurm.workers()) == 3, what="the third worker")


def test_a_deleted_node_set_waits_for_the_job(slurm: HostedSlurm, busy: Object) -> None:
    """Whoever made it makes it again; foreground deletion has the garbage collector delete its pods first."""
    manifest = slurm.kubernetes.get("nodesets.slurm.redbox.dev", WORKERS, NAMESPACE)
    what = ("nodesets.slurm.redbox.dev", WORKERS)
    slurm.kubernetes.delete(*what, namespace=NAMESPACE, wait=False, propagationPolicy="Foreground")
    eventually(lambda: list(slurm.workers()) == [name_of(busy)], what="the end of the idle worker")
    assert stays(slurm, busy)
    job = slurm.run("squeue", "-h", "-o%A")
    slurm.run("touch", f"/tmp/go-{job}", pod=name_of(busy))
    gone = lambda: not slurm.kubernetes.get("nodesets.slurm.redbox.dev", WORKERS, NAMESPACE)  # noqa: E731
    eventually(gone, what="the end of the NodeSet")
    kept = {key: manifest[key] for key in ("apiVersion", "kind", "spec")}
    metadata = {"name": WORKERS, "namespace": NAMESPACE}
    slurm.kubernetes.apply(json.dumps({**kept, "metadata": metadata}))


@contextmanager
def preemptor(slurm: HostedSlurm, worker: Object) -> Iterator[None]:
    apart = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchExpressions": [{"key": OF_WORKERS, "operator": "Exists"}]},
        "namespaces": [NAMESPACE],
    }
    image = worker["spec"]["containers"][0]["image"]
    first = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1_000_000}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "first"},
        "spec": {
            "priorityClassName": "first",
            "nodeSelector": {"kubernetes.io/hostname": worker["spec"]["nodeName"]},
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
            "containers": [{"name": "main", "image": image, "command": ["sleep", "60"]}],
        },
    }
    with slurm.kubernetes.applied("default", {**first, "metadata": {"name": "first"}}, pod):
        yield


def is_disrupted(slurm: HostedSlurm, pod: Object) -> bool:
    found = slurm.kubernetes.get("pod", name_of(pod), NAMESPACE)
    conditions = found["status"].get("conditions", [])
    return any(one["type"] == "DisruptionTarget" and one["status"] == "True" for one in conditions)


def has_slurmctld(slurm: HostedSlurm) -> bool:
    """The status of the Controller may be of the one before."""
    found = slurm.kubernetes.get("pod", SLURMCTLD, NAMESPACE)
    ready = [one["ready"] for one in found.get("status", {}).get("containerStatuses", [])]
    return ready == [True] and "deletionTimestamp" not in found["metadata"]


def has_event(slurm: HostedSlurm, pod: Object, reason: str) -> bool:
    about = f"involvedObject.name={name_of(pod)},reason={reason}"  # that controller leaves out the uid
    return bool(slurm.kubernetes.list("event", NAMESPACE, fields=about))
