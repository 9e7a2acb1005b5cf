"""LoginSets: their pods are not built, and their status says so."""

from __future__ import annotations

from dataclasses import dataclass

from redbox_hosting.api import names
from redbox_hosting.api.daemons import LoginSet
from redbox_hosting.api.status import LoginSetStatus
from redbox_hosting.api.unbuilt import unbuilt_fields
from redbox_hosting.controllers.context import HostingContext
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.status_reporter import READY, StatusReporter, StatusVerdict
from redbox_kube.controller.steps import Reports
from redbox_kube.status.conditions import NewCondition

NOT_BUILT = "NotBuilt"
MESSAGE = "the pods of LoginSets are not built yet: submit jobs through a RestApi with a Token"


@dataclass
class LoginSets:
    """The controller of LoginSets."""

    context: HostingContext

    def __post_init__(self) -> None:
        context = self.context
        how = Reconciliation[LoginSet, LoginSet](
            _itself,
            [],
            report=StatusReporter(context.writer, names.LOGIN_SETS, status_of, clock=context.clock),
        )
        self.controller = Controller(
            "loginsets",
            context.watches.login_sets,
            how,
            context.metrics,
            serves=context.leases.may_write,
        )


async def _itself(login_set: LoginSet) -> LoginSet:
    return login_set


def status_of(login_set: LoginSet, _: Reports) -> StatusVerdict:
    """Never ready."""
    message = "; ".join([MESSAGE, *map(str, unbuilt_fields(login_set.spec))])
    conditions = [
        NewCondition(READY, NOT_BUILT, message, holds=False),
        NewCondition("Progressing", NOT_BUILT, holds=False),
        NewCondition("Degraded", NOT_BUILT, message, holds=True),
    ]
    return LoginSetStatus(), conditions
