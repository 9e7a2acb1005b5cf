"""The watches of hosted Slurm's kinds, which all controllers share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeVar

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.api.daemons import Accounting, LoginSet, RestApi, Token
from redbox_hosting.api.nodeset import NodeSet
from redbox_kube.api.informer import Place
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import ObjectClient
from redbox_kube.controller.kube_object import ObjectT, read_object
from redbox_kube.controller.owned import ManagedKinds
from redbox_kube.controller.watched import WatchedKind

OfController = TypeVar("OfController", NodeSet, LoginSet, RestApi)


class HostingWatches:
    """The newest objects of each kind, in the namespaces that are served."""

    def __init__(self, objects: ObjectClient, namespaces: Sequence[str]) -> None:
        def watched(kind: Kind, model: type[ObjectT]) -> WatchedKind[ObjectT]:
            return WatchedKind(objects, kind, namespaces=namespaces, reduced=partial(read_object, model))

        self.managed = ManagedKinds(objects, namespaces)
        """What the operator makes itself."""
        self.controllers = watched(names.CONTROLLERS, SlurmController)
        self.node_sets = watched(names.NODE_SETS, NodeSet)
        self.login_sets = watched(names.LOGIN_SETS, LoginSet)
        self.rest_apis = watched(names.REST_APIS, RestApi)
        self.accountings = watched(names.ACCOUNTINGS, Accounting)
        self.tokens = watched(names.TOKENS, Token)

    def node_sets_of(self, controller: Place) -> list[NodeSet]:
        """Those of this Controller, sorted by name; also those that are being deleted."""
        return sorted(_of(controller, self.node_sets), key=lambda node_set: node_set.name)

    def login_sets_of(self, controller: Place, _: SlurmController) -> list[Place]:
        return [login_set.place for login_set in _of(controller, self.login_sets)]

    def rest_apis_of(self, controller: Place, _: SlurmController) -> list[Place]:
        return [rest_api.place for rest_api in _of(controller, self.rest_apis)]


def _of(controller: Place, kind: WatchedKind[OfController]) -> Iterator[OfController]:
    for (namespace, _), item in kind.items():
        if (namespace, item.spec.controller_ref.name) == controller:
            yield item
