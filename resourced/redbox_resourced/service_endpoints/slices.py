"""The EndpointSlice of one Service and one pod with dynamic ports. Pure.

Kubernetes' own controller takes a pod's ports from its spec, and passes over pods without an address: so a
pod with dynamic ports gets none, and its slices are ours. A slice has one set of ports for all its endpoints:
hence one for each pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from redbox_clusters.names import GROUP
from redbox_kube.api.kinds import ENDPOINT_SLICE
from redbox_kube.api.objects import Object, ResourcePath

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = f"resourced.{GROUP}"
SERVICE_NAME = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class ServiceView:
    """A Service that selects pods."""

    selector: Mapping[str, str]
    ports: tuple[Object, ...]
    shows_unready: bool

    def selects(self, labels: Mapping[str, str]) -> bool:
        return self.selector.items() <= labels.items()


@dataclass(frozen=True, slots=True)
class PodAddress:
    """Where a pod is reached: its node, and by declared ports those that took their place."""

    uid: str
    address: str
    ports: Mapping[int, int]


def read_service(service: Object) -> ServiceView | None:
    spec = service["spec"]
    if not spec.get("selector") or spec.get("type") == "ExternalName":
        return None
    ports = tuple(spec.get("ports") or ())
    return ServiceView(dict(spec["selector"]), ports, bool(spec.get("publishNotReadyAddresses")))


def endpoint_slice(name: str, service: ServiceView, pod: Object, at: PodAddress) -> Object | None:
    """None where the pod has none of the Service's ports."""
    ports = list(_ports(service, pod["spec"], at.ports))
    if service.ports and not ports:
        return None
    metadata = pod["metadata"]
    is_leaving = "deletionTimestamp" in metadata
    is_ready = any(
        (condition["type"], condition["status"]) == ("Ready", "True")
        for condition in pod["status"].get("conditions") or ()
    )
    endpoint: Object = {
        "addresses": [at.address],
        "conditions": {
            "ready": service.shows_unready or (is_ready and not is_leaving),
            "serving": is_ready,
            "terminating": is_leaving,
        },
        "nodeName": pod["spec"]["nodeName"],
        "targetRef": {
            "kind": "Pod",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "metadata": {
            "namespace": metadata["namespace"],
            "labels": {SERVICE_NAME: name, MANAGED_BY: MANAGER},
            "ownerReferences": [owner],
        },
        "addressType": f"IPv{ip_address(at.address).version}",
        "endpoints": [endpoint],
        "ports": ports,
    }


def path_of_slice(service: str, pod: Object) -> ResourcePath:
    metadata = pod["metadata"]
    return ResourcePath(ENDPOINT_SLICE, f"{service}-{metadata['uid']}", metadata["namespace"])


def _ports(service: ServiceView, spec: Object, chosen: Mapping[int, int]) -> Iterator[Object]:
    """Only ports that were chosen: any other of the node is not the pod's."""
    named = _named_ports(spec)
    for port in service.ports:
        target = port.get("targetPort") or port["port"]
        number = chosen.get(named.get(target, 0) if isinstance(target, str) else target)
        if number is not None:
            yield {"name": port.get("name") or "", "port": number, "protocol": port.get("protocol") or "TCP"}


def _named_ports(spec: Object) -> dict[str, int]:
    """Of the containers that run as long as the pod; the first one of a name counts."""
    sidecars = (each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always")
    named: dict[str, int] = {}
    for container in (*spec["containers"], *sidecars):
        for port in container.get("ports") or ():
            if port.get("name"):
                named.setdefault(port["name"], port["containerPort"])
    return named
