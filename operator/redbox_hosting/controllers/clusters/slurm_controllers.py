"""Controllers: slurmctld with its configuration and keys, and `<name>-control`."""

from __future__ import annotations

from dataclasses import dataclass

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.api.status import ControllerStatus
from redbox_hosting.controllers.context import HostingContext
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.status_reporter import StatusReporter, StatusVerdict
from redbox_kube.controller.steps import Reports


@dataclass(frozen=True)
class ClusterWorld:
    """All that the steps look at."""

    controller: SlurmController


class SlurmControllers:
    """The controller of Controllers."""

    def __init__(self, context: HostingContext) -> None:
        self._context = context
        how = Reconciliation[SlurmController, ClusterWorld](
            self._observe, [], report=StatusReporter(context.writer, names.CONTROLLERS, status_of)
        )
        self.controller = Controller(
            "controllers",
            context.watches.controllers,
            how,
            context.metrics,
            serves=context.leases.may_write,
        )

    async def _observe(self, controller: SlurmController) -> ClusterWorld:
        return ClusterWorld(controller)


def status_of(world: ClusterWorld, reports: Reports) -> StatusVerdict:
    del world, reports
    return ControllerStatus(), []
