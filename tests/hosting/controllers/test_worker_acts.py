"""The writes to one worker, when something has changed since it was looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import pytest
from prometheus_client import Counter

from redbox_hosting.api import names
from redbox_hosting.build.pods.worker import WorkerPlan
from redbox_hosting.controllers.slurm_connections import SlurmConnections
from redbox_hosting.controllers.slurm_snapshots import SlurmSnapshots
from redbox_hosting.controllers.workers.acts.removal import Removal, WorkerRemoval
from redbox_hosting.controllers.workers.acts.worker_creation import WorkerCreation
from redbox_hosting.controllers.workers.worker_views import WorkerView, read_worker
from redbox_hosting.nodeset.observed import WorkerMachine
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_kube.controller.steps import StepFailed
from redbox_kube.status.status_writer import StatusWriter
from tests.hosting.controllers.fake_slurm import FakeKubelet, FakeSlurm
from tests.hosting.controllers.node_set_bench import GuardedApiServer
from tests.hosting.factories import cell, node_set

POD = ResourcePath(kinds.POD, "w-0", "hpc")
CONDEMNED = {names.ANNOTATION_CONDEMNED: "scale-in"}


@dataclass
class Condemned:
    """One worker that is condemned, drained and idle, and the operator's part that deletes it."""

    slurm: FakeSlurm = field(default_factory=FakeSlurm)
    machine: WorkerMachine = WorkerMachine.WELL
    confirmed: float | None = field(default_factory=monotonic)
    holds_lease: bool = True

    def __post_init__(self) -> None:
        self.api = GuardedApiServer(self.slurm)
        self.kubelet = FakeKubelet(self.api, self.slurm)
        labels = {names.LABEL_PROTECTED: "true", names.LABEL_NODE_SET: "w"}
        self.api.put(POD, metadata={"labels": labels, "annotations": CONDEMNED}, spec={"containers": []})
        self.kubelet.start("w-0")
        self.slurm.states["w-0"].add("DRAIN")
        self.seen = self.view

    @property
    def view(self) -> WorkerView:
        return read_worker(self.api.objects[POD])

    def touch(self, **metadata: Any) -> None:
        body = self.api.objects[POD]
        self.api.put(POD, {**body, "metadata": {**body["metadata"], **metadata}})

    def check(self) -> None:
        if not self.holds_lease:
            raise StepFailed("the Lease is held by another one")

    async def remove(self) -> tuple[list[Removal], list[str]]:
        async def machine(_: WorkerView) -> WorkerMachine:
            return self.machine

        connections = SlurmConnections()
        connections.connect(("hpc", "slurm"), self.slurm.client)
        writes = Counter("writes", "Writes.", ("kind", "verb"), registry=None)
        removal = WorkerRemoval(
            StatusWriter(self.api.client, writes),
            SlurmSnapshots(connections),
            machine,
            lambda _: self.confirmed,
            self.check,
        )
        answers = await removal.remove("hpc", ("hpc", "slurm"), [self.seen])
        return [each for _, each in answers.done], [str(error) for _, error in answers.failed]

    @property
    def is_protected(self) -> bool:
        return names.LABEL_PROTECTED in self.api.objects[POD]["metadata"]["labels"]


async def test_a_worker_that_passes_goes() -> None:
    it = Condemned()
    (removal,), _ = await it.remove()
    assert removal.decision
    assert removal.decision.reason == "drained"
    assert POD not in it.api.objects


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("a job has begun", lambda it: it.slurm.start(7, "w-0")),
        ("somebody resumed the node", lambda it: it.slurm.states["w-0"].discard("DRAIN")),
        ("it is completing", lambda it: it.slurm.states["w-0"].add("COMPLETING")),
        ("slurmd is silent", lambda it: it.slurm.states["w-0"].add("NOT_RESPONDING")),
        ("slurmctld is away", lambda it: it.slurm.away()),
        ("the record is gone", lambda it: it.slurm.states.clear()),
        ("the record is another pod's", lambda it: it.slurm.register("w-0", "uid-of-another", "10.0.0.9")),
        ("the machine is lost", lambda it: setattr(it, "machine", WorkerMachine.LOST)),
        ("the drain is not confirmed", lambda it: setattr(it, "confirmed", None)),
        ("Slurm was read before the drain", lambda it: setattr(it, "confirmed", monotonic() + 60)),
        ("it is not condemned any more", lambda it: it.touch(annotations={})),
        ("it ends already", lambda it: it.touch(deletionTimestamp="2026-01-01T00:00:00Z")),
        ("another pod has its name", lambda it: it.touch(uid="uid-of-another")),
    ],
)
async def test_a_worker_that_has_changed_since_stays_as_it_is(
    case: str, change: Callable[[Condemned], object]
) -> None:
    it = Condemned()
    change(it)
    removals, failed = await it.remove()
    assert (removals, failed) == ([Removal()], []), case
    assert it.api.deletions == []
    assert it.is_protected


async def test_without_the_lease_the_protection_stays() -> None:
    it = Condemned(holds_lease=False)
    assert await it.remove() == ([], ["the Lease is held by another one"])
    assert it.is_protected


async def test_a_pod_that_changes_before_its_label_is_off_is_looked_at_again() -> None:
    it = Condemned()
    it.api.before_next_write = it.touch
    assert await it.remove() == ([Removal(has_changed=True)], [])
    assert it.is_protected


async def test_a_pod_that_changes_after_its_label_is_off_is_looked_at_again() -> None:
    it = Condemned()

    def touch() -> None:
        it.api.before_next_write = it.touch

    it.api.before_next_write = touch
    assert await it.remove() == ([Removal(has_changed=True)], [])
    assert POD in it.api.objects


async def test_a_pod_that_is_neither_made_nor_there_is_made_again() -> None:
    """409 is not only of a name that exists: a quota that was changed at the same moment answers so, too."""

    class Conflicting(GuardedApiServer):
        async def create(self, *_: object, **__: object) -> None:
            return None

    writes = Counter("writes", "Writes.", ("kind", "verb"), registry=None)
    creation = WorkerCreation(StatusWriter(Conflicting(FakeSlurm()).client, writes))
    with pytest.raises(StepFailed, match="the pod w-0 could not be created, and is created again"):
        await creation.create(cell(), WorkerPlan(node_set(), 0, "rev"))
