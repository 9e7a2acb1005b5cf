"""Checks that the chart's admission policies limit resourced, where RBAC is too coarse.

resourced may request tokens of any account, patch any pod and write any PersistentVolume of the namespaces
and cluster that it serves; each of these rights has a policy. Before the right is used, a request that the
policy must refuse is sent: if the API server takes it, the right is not used. None of these requests changes
anything: they are dry runs, or ask for a token with an audience that no server accepts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from redbox_clusters.names import GROUP
from redbox_clusters.redbox_token import ServiceAccountName
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiError, ApiRefused, Object, ObjectClient, ResourcePath

log = structlog.get_logger(__name__)
PROBE_AUDIENCE = "probe.invalid"
PROBE_NAME = "redbox-probe"
SHORTEST_S = 600
RETRY_S = 30.0
TOKENS_MISSING = (
    "Virtual delivery does not start: the ValidatingAdmissionPolicy redbox-tokens, which limits what "
    "resourced may request tokens for, is not in force; install it with the chart (admission.tokens: true)"
)
PODS_MISSING = (
    "Pods do not run: the ValidatingAdmissionPolicy redbox-pods, which limits what resourced may change of "
    "pods, is not in force; install it with the chart (resourced.pods.enabled: true)"
)
VOLUMES_MISSING = (
    "Pods do not run: the ValidatingAdmissionPolicy redbox-volumes, which limits which PersistentVolumes "
    "resourced may write, is not in force; install it with the chart (resourced.pods.enabled: true)"
)

SLICES_MISSING = (
    "Services do not lead to pods with dynamic ports: the ValidatingAdmissionPolicy redbox-slices, which "
    "limits which EndpointSlices resourced may write, is not in force; install it with the chart "
    "(resourced.pods.enabled: true)"
)


@dataclass
class AdmissionPolicy:
    """`problem` is empty once the policy has refused the request.

    The API server names one policy that refuses. Others may refuse such requests of everybody, and a refusal
    of theirs shows nothing of ours.
    """

    name: str
    namespace: str
    """The release's: where it is limited to some namespaces, it is part of the names of its policies."""
    missing: str
    """The problem where the policy has not refused it."""
    probe: Callable[[], Awaitable[object]]
    """Sends a request that only the policy refuses."""
    problem: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.problem = f"the policy {self.name} has not been checked yet"

    async def wait(self) -> None:
        while self.problem:
            try:
                problem = "" if await self._refuses() else self.missing
            except ApiError as error:
                problem = f"cannot check whether the policy {self.name} is in force: {error}"
            if problem and problem != self.problem:
                log.error("admission policy", policy=self.name, problem=problem)
            self.problem = problem
            if problem:
                await asyncio.sleep(RETRY_S)

    async def _refuses(self) -> bool:
        try:
            await self.probe()
        except ApiRefused as refusal:
            names = (self.name, f"{self.name}-{self.namespace}")
            if any(f"ValidatingAdmissionPolicy '{name}'" in str(refusal) for name in names):
                return True
            if "ValidatingAdmissionPolicy" in str(refusal):
                raise ApiError(
                    f"another policy refuses what it must refuse; exempt resourced from that one: {refusal}"
                ) from refusal
            raise
        return False


def token_policy(objects: ObjectClient, account: ServiceAccountName) -> AdmissionPolicy:
    """Tokens of other accounts are for red-boxes only, and bound to a pod."""
    probe = partial(objects.token_for, account.namespace, account.name, PROBE_AUDIENCE, seconds=SHORTEST_S)
    return AdmissionPolicy("redbox-tokens", account.namespace, TOKENS_MISSING, probe)


def pod_policy(objects: ObjectClient, account: ServiceAccountName) -> AdmissionPolicy:
    """Of pods, nothing but the seconds of two tolerations is changed: the probe adds a label to any pod."""
    probe = partial(_label_some_pod, objects, account.namespace)
    return AdmissionPolicy("redbox-pods", account.namespace, PODS_MISSING, probe)


def volume_policy(objects: ObjectClient, account: ServiceAccountName) -> AdmissionPolicy:
    """PersistentVolumes are of our own driver: the probe creates one that is a path of a real node."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Mi"},
        "hostPath": {"path": "/var/empty"},
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": PROBE_NAME},
        "spec": spec,
    }
    probe = partial(objects.create, ResourcePath(kinds.PERSISTENT_VOLUME), volume, dry_run=True)
    return AdmissionPolicy("redbox-volumes", account.namespace, VOLUMES_MISSING, probe)


def slice_policy(objects: ObjectClient, account: ServiceAccountName) -> AdmissionPolicy:
    """EndpointSlices are of resourced's pods: the probe creates one of any Service."""
    body = {
        "apiVersion": kinds.ENDPOINT_SLICE.api_version,
        "kind": "EndpointSlice",
        "metadata": {"name": PROBE_NAME, "namespace": account.namespace},
        "addressType": "IPv4",
        "endpoints": [],
    }
    where = ResourcePath(kinds.ENDPOINT_SLICE, namespace=account.namespace)
    probe = partial(objects.create, where, body, dry_run=True)
    return AdmissionPolicy("redbox-slices", account.namespace, SLICES_MISSING, probe)


async def _label_some_pod(objects: ObjectClient, namespace: str) -> None:
    """Resourced's own pod, as a rule."""
    label: list[Object] = [{"op": "add", "path": "/metadata/labels", "value": {f"{GROUP}/probe": "true"}}]
    for where in (ResourcePath(kinds.POD, namespace=namespace), ResourcePath(kinds.POD)):
        async for page, _ in objects.pages(where, {"limit": "1"}):
            for pod in page:
                metadata = pod["metadata"]
                path = ResourcePath(kinds.POD, metadata["name"], metadata["namespace"])
                if await objects.json_patch(path, label, dry_run=True) is not None:
                    return
            break
    raise ApiError("there is no pod to try it on")
