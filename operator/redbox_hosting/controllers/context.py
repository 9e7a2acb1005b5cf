"""What every controller of hosted Slurm is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry

from redbox_hosting.api.controller import SlurmController
from redbox_hosting.build.config.releases import release_of
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.controllers.slurm_connections import SlurmConnections
from redbox_hosting.controllers.slurm_snapshots import SlurmSnapshots
from redbox_hosting.controllers.watched_kinds import HostingWatches
from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_kube.api.kinds import SERVICE, STATEFUL_SET, Kind
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_kube.controller.namespace_leases import NamespaceLeases
from redbox_kube.controller.owned import OwnedObjects
from redbox_kube.controller.steps import StepFailed
from redbox_kube.runtime.clock import now
from redbox_kube.status.status_writer import StatusWriter


@dataclass(frozen=True, slots=True)
class DefaultImages:
    """For objects that name none; empty: they must."""

    slurm: str = ""
    database: str = ""


@dataclass(frozen=True, slots=True)
class OperatorPods:
    """Where the operator's own pods are, and the value of their label app.kubernetes.io/name."""

    namespace: str
    name: str = "redbox-hosting"


@dataclass(frozen=True)
class HostingContext:
    """Each controller passes `serves=context.leases.may_write` to the kit's Controller."""

    writer: StatusWriter
    metrics: ControllerMetrics
    leases: NamespaceLeases
    watches: HostingWatches
    connections: SlurmConnections
    snapshots: SlurmSnapshots
    images: DefaultImages
    operator: OperatorPods
    namespaces: Sequence[str]
    registry: CollectorRegistry
    reads_nodes: bool = False
    """Whether the operator may read Nodes: else cordons and lost machines are not seen."""
    node_conditions: frozenset[str] = frozenset()
    """Types of conditions of Nodes that drain the workers there while they are True."""
    clock: Callable[[], datetime] = now

    def owned_objects(self, owner: Kind, of_kinds: Iterable[Kind]) -> OwnedObjects:
        """What the objects of this kind own, in the served namespaces."""
        return OwnedObjects(
            self.writer, owner, of_kinds, managed=self.watches.managed, replaced=(SERVICE, STATEFUL_SET)
        )

    def slurm_of(self, namespace: str, controller: str) -> SlurmrestdClient:
        """SlurmUnknown with the reason if this cluster cannot be asked."""
        return self.connections.slurm_of(namespace, controller)

    def controller_of(self, namespace: str, name: str) -> SlurmController:
        """Raises StepFailed if there is none."""
        found = self.watches.controllers.get((namespace, name))
        if found is None:
            raise StepFailed(f"there is no Controller {name} in the namespace {namespace}: create it")
        return found

    def cell_of(self, controller: SlurmController) -> SlurmCell:
        """The cluster as builders see it; raises StepFailed without an image of a known release.

        A Controller that names no image keeps the one that runs: a new operator replaces no daemon.
        """
        asked = controller.spec.slurmctld.get("image") or controller.status.image
        return self._cell(controller, str(asked or self.images.slurm))

    def running_cell_of(self, controller: SlurmController) -> SlurmCell:
        """With the image that slurmctld was seen to run, for daemons that must not be newer."""
        asked = self.cell_of(controller)
        return self._cell(controller, controller.status.image) if controller.status.image else asked

    def _cell(self, controller: SlurmController, image: str) -> SlurmCell:
        if not image:
            raise StepFailed("no image is configured: set spec.slurmctld.image")
        return SlurmCell(
            name=controller.name,
            namespace=controller.namespace,
            uid=controller.uid,
            spec=controller.spec,
            image=image,
            release=release_of(image),
        )
