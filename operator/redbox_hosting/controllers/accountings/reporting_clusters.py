"""The Controllers that name an Accounting, and what slurmdbd has of each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

from redbox_hosting.api import names
from redbox_hosting.api.controller import ControllerSpec, SlurmController
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.slurm.accounting import SlurmdbClient
from redbox_hosting.slurm.errors import SlurmrestdError
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import ApiError
from redbox_kube.api.pod_logs import log_tail
from redbox_kube.controller.status_reporter import READY

LOG_LINES = 200
ID_MISMATCH = "CLUSTER ID MISMATCH"


@dataclass(frozen=True, slots=True)
class ReportingCluster:
    """A Controller that names this Accounting, and what slurmdbd has of it."""

    controller: SlurmController
    slurmdb: SlurmdbClient | None = None
    is_registered: bool = False
    unread: str = ""
    """Why that is not known."""
    has_wrong_id: bool = False
    has_wrong_keys: bool = False

    @property
    def name_in_slurm(self) -> str:
        return self.controller.spec.name_in_slurm(self.controller.namespace, self.controller.name)

    @property
    def cure_of_id(self) -> str:
        place, pod = self.controller.namespace, names.controller_host(self.controller.name)
        return (
            f"{ID_MISMATCH}: slurmctld of {self.controller.name} made a cluster id when it ran without "
            "accounting, and refuses the one that slurmdbd has. Remove the file with the id; jobs and nodes "
            f"stay: kubectl -n {place} exec {pod} -c slurmctld -- rm /var/spool/slurmctld/clustername; then "
            "delete the ConfigMap that the Controller's condition Configuration names"
        )


class ReportingClusters:
    """Reads them, all at the same time: one that hangs delays no other."""

    def __init__(self, context: HostingContext) -> None:
        self._context = context

    def of(self, accounting: Place, first: str) -> list[SlurmController]:
        """By age, but `first` before all others."""
        found = [
            controller
            for place, controller in self._context.watches.controllers.items()
            if accounting in accounting_of(place, controller) and not controller.being_deleted
        ]
        return sorted(found, key=lambda controller: (controller.name != first, _age(controller)))

    async def read(
        self, controllers: Iterable[SlurmController], slurmdbd: SlurmCell | None
    ) -> tuple[ReportingCluster, ...]:
        """`slurmdbd` is None where it runs elsewhere."""
        clusters = await asyncio.gather(*map(self._cluster, controllers))
        return tuple(
            replace(cluster, has_wrong_keys=_has_other_keys(cluster.controller, slurmdbd))
            for cluster in clusters
        )

    async def _cluster(self, controller: SlurmController) -> ReportingCluster:
        made = ReportingCluster(controller)
        try:
            slurmdb = SlurmdbClient(self._context.slurm_of(*controller.place))
            is_registered = made.name_in_slurm in await slurmdb.registered_clusters()
        except SlurmrestdError as error:
            wrong = await self._has_wrong_id(controller)
            return replace(made, unread=str(error), has_wrong_id=wrong)
        wrong = not is_registered and await self._has_wrong_id(controller)
        return replace(made, slurmdb=slurmdb, is_registered=is_registered, has_wrong_id=wrong)

    async def _has_wrong_id(self, controller: SlurmController) -> bool:
        """By slurmctld's own words: in a condition of a Controller that is not ready, else in its log."""
        conditions = controller.status.conditions
        is_ready = any(condition.type == READY and condition.status == "True" for condition in conditions)
        if controller.spec.external or is_ready:
            return False
        if any(ID_MISMATCH in condition.message for condition in conditions):
            return True  # it may run on with another configuration by now, in a new pod
        objects, pod = self._context.writer.objects, names.controller_host(controller.name)
        try:
            log = await log_tail(objects, controller.namespace, pod, "slurmctld", lines=LOG_LINES)
        except ApiError:
            return False
        return ID_MISMATCH in log


def accounting_of(place: Place, controller: SlurmController) -> Iterable[Place]:
    ref = controller.spec.accounting_ref
    return [(place[0], ref.name)] if ref is not None and ref.name else []


def _has_other_keys(controller: SlurmController, slurmdbd: SlurmCell | None) -> bool:
    """Whether slurmdbd lacks this cluster's keys; one that runs elsewhere has none of the operator's."""
    if slurmdbd is None:
        return controller.spec.slurm_key_ref is None or controller.spec.jwt_key is None
    return _keys_of(controller.spec, controller.name) != _keys_of(slurmdbd.spec, slurmdbd.name)


def _keys_of(spec: ControllerSpec, name: str) -> list[tuple[str, str]]:
    own = names.keys_name(name)
    return [(ref.name, ref.key) if ref else (own, "") for ref in (spec.slurm_key_ref, spec.jwt_key)]


def _age(controller: SlurmController) -> tuple[str, str]:
    return str(controller.metadata.get("creationTimestamp", "")), controller.name
