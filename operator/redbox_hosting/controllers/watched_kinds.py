"""The watches of hosted Slurm's kinds, which all controllers share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

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
        return sorted(self._node_sets_of(controller), key=lambda node_set: node_set.name)

    def _node_sets_of(self, controller: Place) -> Iterator[NodeSet]:
        for (namespace, _), node_set in self.node_sets.items():
            if (namespace, node_set.spec.controller_ref.name) == controller:
                yield node_set
