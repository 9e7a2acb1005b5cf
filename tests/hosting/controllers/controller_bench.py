"""The operator at the API server of the tests, with one Controller: what users and Kubernetes do to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_hosting.application import HostingOperator, HostingOptions
from redbox_hosting.controllers.context import DefaultImages, OperatorPods
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.controller.controller import run_controllers
from tests.kube.fakes import FakeApiServer

SLURM = ResourcePath(names.CONTROLLERS, "slurm", "hpc")
SLURM_PLACE = ("hpc", "slurm")
OPTIONS = HostingOptions(
    ["hpc"], OperatorPods("redbox-system"), DefaultImages(slurm="registry.example.org/redbox-slurm:26.05")
)


def at(kind: kinds.Kind, name: str) -> ResourcePath:
    return ResourcePath(kind, name, "hpc")


@pytest.fixture
def api() -> FakeApiServer:
    return FakeApiServer()


@pytest.fixture(autouse=True)
async def operator(api: FakeApiServer) -> AsyncIterator[HostingOperator]:
    operator = HostingOperator(api.client, OPTIONS)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(operator.leases.run(operator._lease_changed)),
            group.create_task(run_controllers(operator.controllers)),
        ]
        yield operator
        for task in tasks:
            task.cancel()


async def eventually(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(100):
        while not check():  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.005)


def condition(api: FakeApiServer, name: str) -> Object:
    conditions = api.objects[SLURM].get("status", {}).get("conditions") or []
    return next((dict(each) for each in conditions if each["type"] == name), {})


def roll_out(api: FakeApiServer, *kinds_of_daemons: kinds.Kind) -> None:
    """As Kubernetes does it."""
    for kind in kinds_of_daemons:
        for body in api.of_kind(kind.name):
            api.put(
                at(kind, body["metadata"]["name"]), body, status={"updatedReplicas": 1, "readyReplicas": 1}
            )


def change(api: FakeApiServer, spec: Object, **status: object) -> None:
    """The user's write."""
    before = api.objects[SLURM]
    generation = before["metadata"].get("generation", 1) + 1
    metadata = {**before["metadata"], "generation": generation}
    api.put(SLURM, {**before, "status": {**before.get("status", {}), **status}}, metadata=metadata, spec=spec)


def image_of(api: FakeApiServer, where: ResourcePath) -> str:
    return str(api.objects[where]["spec"]["template"]["spec"]["containers"][0]["image"])


def put_slurmctld_pod(api: FakeApiServer, *, ends: bool = False, **status: object) -> ResourcePath:
    """As the StatefulSet makes it."""
    labels = {names.LABEL_ROLE: "slurmctld", names.LABEL_CLUSTER: "slurm"}
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubelet"]} if ends else {}
    where = at(kinds.POD, "slurm-controller-0")
    api.put(where, metadata={"labels": labels, **ending}, status=status)
    return where


def put_in_service(api: FakeApiServer, **spec: object) -> str:
    """What is mounted was seen to run; then its user changes the spec. Returns the digest of what runs."""
    runs = digest_of(api, at(kinds.CONFIG_MAP, "slurm-config"))
    change(api, spec, configHash=runs)
    return runs


def digest_of(api: FakeApiServer, where: ResourcePath) -> str:
    return str(api.objects[where]["metadata"].get("annotations", {}).get(names.ANNOTATION_CONFIG_HASH, ""))


def crashed(log: str) -> dict[str, Any]:
    """The status of a pod whose slurmctld the kubelet starts again later."""
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": log}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    return {"containerStatuses": [{"name": "slurmctld", "state": waiting, "lastState": ended}]}
