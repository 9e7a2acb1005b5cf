"""kopf watches; what it sees goes to the reconciler, which alone decides and writes.

Only `on.event` handlers are used: they keep no progress in annotations and add no finalizers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import kopf
import structlog
from pydantic import ValidationError

from redbox_kube.names import GROUP, LABEL_JOB_UID, VERSION
from redbox_kube.objects import Objects
from redbox_kube.own_token import Account
from redbox_kube.slurm_cluster import SlurmCluster
from redbox_operator.jobs_at_redbox import RedboxWatch
from redbox_operator.kinds import SlurmJob
from redbox_operator.known_names import FIELD_MANAGER
from redbox_operator.reconciler import Reconciler

log = structlog.get_logger(__name__)
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
KindT = TypeVar("KindT", SlurmJob, SlurmCluster)


@dataclass
class Clusters:
    """The watches of the SlurmClusters that there are."""

    objects: Objects
    account: Account
    watches: dict[str, RedboxWatch] = field(default_factory=dict)
    _stacks: dict[str, AsyncExitStack] = field(default_factory=dict)

    async def seen(self, cluster: SlurmCluster, reconciler: Reconciler) -> None:
        """A SlurmCluster came, or changed."""
        known = self.watches.get(cluster.name)
        if known and known.cluster.spec == cluster.spec:
            return
        await self.gone(cluster.name)
        stack = self._stacks[cluster.name] = AsyncExitStack()
        watch = RedboxWatch(cluster, self.objects, self.account, reconciler.wake_uid)
        self.watches[cluster.name] = await stack.enter_async_context(watch)
        reconciler.wake_cluster(cluster.name)

    async def gone(self, name: str) -> None:
        """It is no more, or is replaced."""
        self.watches.pop(name, None)
        if name in self._stacks:
            await self._stacks.pop(name).aclose()

    async def close(self) -> None:
        """End all watches."""
        for name in list(self._stacks):
            await self.gone(name)


def registry_for(reconciler: Reconciler, clusters: Clusters) -> kopf.OperatorRegistry:
    """Tell kopf what to watch, and whom to tell."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(
        logger: kopf.Logger, settings: kopf.OperatorSettings, **_: object
    ) -> kopf.ConnectionInfo | None:
        own = service_account_login(os.environ)
        return own or kopf.login_with_kubeconfig(logger=logger, settings=settings)

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: object) -> None:
        settings.networking.request_timeout = 60.0
        settings.posting.enabled = False

    @kopf.on.event(GROUP, VERSION, "slurmjobs", registry=registry)
    def job_event(event: kopf.RawEvent, **_: object) -> None:
        job = _read(SlurmJob, event["object"])
        if job is not None:
            (reconciler.job_gone if event["type"] == "DELETED" else reconciler.job_seen)(job)

    @kopf.on.event("", "v1", "pods", labels={LABEL_JOB_UID: kopf.PRESENT}, registry=registry)
    def companion_event(event: kopf.RawEvent, **_: object) -> None:
        reconciler.companion_seen(dict(event["object"]), gone=event["type"] == "DELETED")

    @kopf.on.event(GROUP, VERSION, "slurmclusters", registry=registry)
    async def cluster_event(event: kopf.RawEvent, **_: object) -> None:
        cluster = _read(SlurmCluster, event["object"])
        if cluster is None:
            return
        if event["type"] == "DELETED":
            await clusters.gone(cluster.name)
        else:
            await clusters.seen(cluster, reconciler)

    return registry


def service_account_login(environ: Mapping[str, str]) -> kopf.ConnectionInfo | None:
    """The pod's own account, by the address that the kubelet gives it: a cluster need not have DNS."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token = SERVICE_ACCOUNT / "token"
    if not host or not token.exists():
        return None
    address = f"[{host}]" if ":" in host else host
    return kopf.ConnectionInfo(
        server=f"https://{address}:{port or 443}",
        ca_path=str(SERVICE_ACCOUNT / "ca.crt"),
        token=token.read_text().strip(),
    )


def _read(kind: type[KindT], raw: kopf.RawBody) -> KindT | None:
    """What the schema let through and the model does not is said, and harms nobody else."""
    try:
        return kind.model_validate(dict(raw))
    except ValidationError as error:
        log.warning("unreadable", kind=kind.__name__, name=raw["metadata"]["name"], error=str(error))
        return None


async def run_operator(account: Account, image: str) -> None:
    """Watch and reconcile until told to end."""
    objects = await Objects.connect(FIELD_MANAGER)
    clusters = Clusters(objects, account)
    reconciler = Reconciler(objects, clusters.watches, image)
    working = asyncio.create_task(reconciler.run())
    try:
        await kopf.operator(registry=registry_for(reconciler, clusters), clusterwide=True)
    finally:
        working.cancel()
        await asyncio.wait({working})
        await clusters.close()
        await objects.close()
