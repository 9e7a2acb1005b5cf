"""A worker as its pod shows it, whatever others write into that pod."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_hosting.controllers.workers.worker_views import UNKNOWN_ORIGIN, machine_of, read_worker
from redbox_hosting.nodeset.observed import WorkerMachine
from redbox_kube.api.objects import Object

STARTED, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def body(status: Object | None = None, **annotations: str) -> Object:
    given = {f"{names.GROUP}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    metadata = {"name": "w-0", "namespace": "hpc", "uid": "uid-0", "annotations": given}
    return {"metadata": metadata, "spec": {"containers": []}, "status": status or {}}


def slurmd(state: Object, **more: Any) -> Object:
    return {"containerStatuses": [{"name": "slurmd", "state": state, **more}]}


@pytest.mark.parametrize(
    ("status", "has_ended"),
    [
        ({}, False),
        (slurmd({"running": {"startedAt": STARTED}}), False),
        (slurmd({"terminated": {"exitCode": 137}}), True),
        (slurmd({"waiting": {"reason": "ContainerCreating"}}), False),
        (slurmd({"waiting": {"reason": "CrashLoopBackOff"}}, lastState={"terminated": {}}), True),
        (slurmd({"running": {}}, lastState={"terminated": {}}), False),
    ],
)
def test_a_container_has_ended_when_its_kubelet_says_so(status: Object, *, has_ended: bool) -> None:
    assert read_worker(body(status)).pod.container_ended is has_ended


def test_the_start_is_of_the_container_that_runs() -> None:
    assert read_worker(body(slurmd({"running": {"startedAt": LATER}}))).pod.container_started == 1767225660
    assert read_worker(body(slurmd({"terminated": {"startedAt": LATER}}))).pod.container_started is None


@pytest.mark.parametrize("created_as", ["[" * 200_000, "[]", '{"spec": 1}', "{", "null", ""])
def test_no_annotation_hides_a_worker(created_as: str) -> None:
    assert read_worker(body(created_as=created_as)).pod.altered == UNKNOWN_ORIGIN


@pytest.mark.parametrize("text", ["soon", "0001-01-01T00:00:00", "9" * 5000, ""])
def test_numbers_and_times_that_cannot_be_read_are_none(text: str) -> None:
    pod = read_worker(body(pod_deadline=text, pod_deletion_cost=text)).pod
    assert (pod.deadline, pod.deletion_cost) == (None, 0)


@pytest.mark.parametrize(("claim", "is_own"), [("data-w-0", True), ("homes", False), ("data-w-1", False)])
def test_only_a_claim_of_its_own_binds_a_worker(claim: str, *, is_own: bool) -> None:
    """All workers may mount one with the users' homes, and then run anywhere."""
    worker = body()
    worker["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    assert read_worker(worker).pod.has_claim is is_own


def kubernetes_node(ready: str = "True", **spec: Any) -> Object:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": STARTED}
    return {"metadata": {"name": "k1"}, "spec": spec, "status": {"conditions": [condition]}}


OUT_OF_SERVICE = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]


@pytest.mark.parametrize(
    ("node", "machine"),
    [
        (None, WorkerMachine.GONE),
        (kubernetes_node(), WorkerMachine.WELL),
        (kubernetes_node(unschedulable=True), WorkerMachine.CORDONED),
        (kubernetes_node("Unknown"), WorkerMachine.LOST),
        (kubernetes_node("False", unschedulable=True), WorkerMachine.LOST),
        (kubernetes_node("Unknown", taints=OUT_OF_SERVICE), WorkerMachine.OFF),
    ],
)
def test_the_machine_of_a_worker(node: Object | None, machine: WorkerMachine) -> None:
    assert machine_of(node, 1767225660)[0] is machine


def test_a_kubelet_that_is_silent_for_a_moment_is_not_lost() -> None:
    assert machine_of(kubernetes_node("Unknown"), 1767225610)[0] is WorkerMachine.WELL


def fault(status: str = "True", of: str = "KernelDeadlock") -> Object:
    return {"type": of, "status": status, "reason": "DockerHung", "message": "task blocked"}


@pytest.mark.parametrize(
    ("case", "conditions", "spec", "machine", "reason"),
    [
        ("one", [fault()], {}, WorkerMachine.FAULTY, "KernelDeadlock (DockerHung: task blocked)"),
        (
            "two",
            [fault(), fault(of="ReadonlyFilesystem")],
            {},
            WorkerMachine.FAULTY,
            "KernelDeadlock (DockerHung: task blocked), ReadonlyFilesystem (DockerHung: task blocked)",
        ),
        ("not true", [fault("False")], {}, WorkerMachine.WELL, ""),
        ("unknown", [fault("Unknown")], {}, WorkerMachine.WELL, ""),
        ("not named", [fault(of="DiskPressure")], {}, WorkerMachine.WELL, ""),
        ("a cordon has its own reason", [fault()], {"unschedulable": True}, WorkerMachine.CORDONED, ""),
        ("out of service", [fault()], {"taints": OUT_OF_SERVICE}, WorkerMachine.OFF, ""),
    ],
)
def test_conditions_of_a_kubernetes_node(
    case: str, conditions: list[Object], spec: dict[str, Any], machine: WorkerMachine, reason: str
) -> None:
    node = kubernetes_node(**spec)
    node["status"]["conditions"] += conditions
    found = machine_of(node, 1767225660, {"KernelDeadlock", "ReadonlyFilesystem"})
    assert found == (machine, reason), case
