"""Approves what resourced requests: the serving certificate of the kubelet API of virtual nodes.

The signer of kubelets' certificates wants an approval, because a kubelet could request any address. A request
of resourced is approved for the address of one of its own pods, which is another one after each restart; all
other requests are the administrator's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from redbox_clusters.serving_requests import RESOURCED, SIGNER, address_of
from redbox_kube.api import kinds
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_kube.controller.steps import ReconcileStep, StepOutcome
from redbox_kube.controller.watched import WatchedKind

OF_SIGNER = {"fieldSelector": f"spec.signerName={SIGNER}"}
PODS = {"labelSelector": f"app.kubernetes.io/name={RESOURCED}"}


@dataclass(frozen=True, slots=True)
class ServingRequest:
    """A request of resourced that is not decided yet."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class RequestWorld:
    """The request, and the addresses of resourced's pods."""

    request: ServingRequest
    own: frozenset[str]


class ServingApproval:
    """What its controller reads and does."""

    def __init__(self, objects: ObjectClient, namespace: str) -> None:
        self._objects = objects
        self.requests = WatchedKind(
            objects, kinds.CERTIFICATE_SIGNING_REQUEST, selection=OF_SIGNER, reduced=waiting_request
        )
        self.pods = WatchedKind(
            objects, kinds.POD, namespaces=[namespace], selection=PODS, reduced=addresses_of
        )

    def controller(self, metrics: ControllerMetrics) -> Controller[ServingRequest, RequestWorld]:
        """It writes nothing but the approval."""
        steps = [ReconcileStep("Approve", self._approve)]
        reconciliation = Reconciliation(self._observe, steps)
        watches = [(self.pods, self._waiting)]
        return Controller("serving-approval", self.requests, reconciliation, metrics, watches=watches)

    def _waiting(self, *_: object) -> list[Place]:
        """Any pod may be the one that a request waits for."""
        return [place for place, _ in self.requests.items()]

    async def _observe(self, request: ServingRequest) -> RequestWorld:
        own = frozenset(address for _, addresses in self.pods.items() for address in addresses)
        return RequestWorld(request, own)

    async def _approve(self, world: RequestWorld) -> StepOutcome:
        request = world.request
        if request.address not in world.own:
            return StepOutcome(waits_for=f"a pod of resourced at {request.address}")
        condition = {
            "type": "Approved",
            "status": "True",
            "reason": "PodOfResourced",
            "message": f"Requested by resourced for the address of its pod, {request.address}.",
            "lastUpdateTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
        where = ResourcePath(kinds.CERTIFICATE_SIGNING_REQUEST, request.name)
        await self._objects.merge(where, {"status": {"conditions": [condition]}}, subresource="approval")
        return StepOutcome(did=f"approved for {request.address}")


def addresses_of(pod: Object) -> tuple[str, ...]:
    return tuple(each["ip"] for each in pod.get("status", {}).get("podIPs") or ())


def waiting_request(request: Object) -> ServingRequest | None:
    """None unless resourced wrote it and it is not decided yet."""
    name = request["metadata"]["name"]
    is_decided = bool(request.get("status", {}).get("conditions"))
    address = address_of(request["spec"]) if name.startswith(f"{RESOURCED}-") and not is_decided else None
    return None if address is None else ServingRequest(name, address)
