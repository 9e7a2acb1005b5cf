"""kopf's watches: each event goes to the reconciler of its kind.

Only `on.event` handlers are used: they keep no progress in annotations and add no finalizers. An event
without a type is part of a list: kopf lists again when its resourceVersion has expired, and does not report
objects that were deleted meanwhile, so a resync is requested.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import kopf

from redbox_clusters.names import GROUP, LABEL_JOB_UID, VERSION
from redbox_clusters.slurm_endpoint import endpoint_key
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import Object
from redbox_operator.api.decode import RESOURCES, read_job
from redbox_operator.api.slurmjob import SlurmJobRef
from redbox_operator.companion_pods.plan import companion_of
from redbox_operator.slurmcluster.reconciler import SlurmClusters
from redbox_operator.slurmjob.kopf_session import session_by
from redbox_operator.slurmjob.reconciler import Reconciler

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CHUNK = 40
"""Objects of a page: kopf has each as bytes, as text and as objects, and tenants make some of 1.5 MiB."""
Event = Mapping[str, object]
RELIST_PAUSE_S = 2.0
"""After a watch that has to list again: its version has expired, or the API server reports an error."""


class EndlessBackoffs:
    """The pauses between tries of a request of kopf's, without an end.

    After its last try kopf ends all its watches, and may hang in doing so: the operator then goes on without
    them. Enough were a minute of errors of the API server, or rights that are revoked in one namespace.
    """

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0), itertools.repeat(30.0))


def registry_for(
    reconciler: Reconciler,
    clusters: SlurmClusters,
    relisted: Callable[[], None],
    watch_read: Callable[[], None] = lambda: None,
) -> kopf.OperatorRegistry:
    """The handlers of all watches; `relisted` is called for each SlurmJob of a list, `watch_read` often."""
    registry = kopf.OperatorRegistry()

    # The same login yields the same session: kopf compares them to notice that it was refused.
    session = functools.cache(
        functools.partial(
            session_by,
            is_own_write=reconciler.cache.is_own_write,
            watch_read=watch_read,
            is_newest=lambda login: service_account_login(os.environ) == login,
        )
    )

    @kopf.on.login(registry=registry)
    async def login(
        logger: kopf.Logger, settings: kopf.OperatorSettings, **_: object
    ) -> kopf.AiohttpSession | None:
        own = service_account_login(os.environ)
        credentials = own or kopf.login_with_kubeconfig(logger=logger, settings=settings)
        return session(credentials) if credentials else None

    for resource in RESOURCES:
        _watch_jobs(registry, resource, reconciler, relisted)

    @kopf.on.event("", "v1", "pods", labels={LABEL_JOB_UID: kopf.PRESENT}, registry=registry)
    async def companion_event(event: kopf.RawEvent, **_: object) -> None:
        pod = companion_of(dict(event["object"]))
        if event["type"] == "DELETED":
            reconciler.companion_deleted(pod)
        else:
            reconciler.companion_updated(pod)

    @kopf.on.event(GROUP, VERSION, "slurmclusters", registry=registry)
    async def cluster_event(event: kopf.RawEvent, **_: object) -> None:
        raw: Object = dict(event["object"])
        if event["type"] == "DELETED":
            clusters.deleted(raw["metadata"]["name"])
        else:
            clusters.updated(raw)

    @kopf.on.event(GROUP, VERSION, "slurmendpoints", registry=registry)
    async def endpoint_event(event: kopf.RawEvent, **_: object) -> None:
        raw: Object = dict(event["object"])
        if event["type"] == "DELETED":
            clusters.deleted(endpoint_key(raw["metadata"]["namespace"], raw["metadata"]["name"]))
        else:
            clusters.updated(raw)

    return registry


def _watch_jobs(
    registry: kopf.OperatorRegistry, resource: Kind, reconciler: Reconciler, relisted: Callable[[], None]
) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=registry, id=resource.plural)
    async def job_event(event: kopf.RawEvent, **_: object) -> None:
        raw: Object = dict(event["object"])
        if event["type"] is None:
            relisted()
        metadata = raw["metadata"]
        ref = SlurmJobRef(resource, metadata["namespace"], metadata["name"])
        if event["type"] == "DELETED":
            reconciler.job_deleted(ref, metadata["uid"])
        elif reconciler.cache.is_newer(ref, metadata["resourceVersion"]):
            reconciler.job_updated(read_job(resource, raw))  # most events are about writes of our own


def settings_for(namespaces: Sequence[str]) -> kopf.OperatorSettings:
    """For an operator of these namespaces; limited to some, it has no rights to scan the whole cluster."""
    settings = kopf.OperatorSettings()
    settings.networking.request_timeout = 60.0
    settings.networking.connect_timeout = 10.0
    settings.networking.error_backoffs = EndlessBackoffs()
    settings.watching.reconnect_backoff = RELIST_PAUSE_S
    settings.watching.connect_timeout = 10.0
    settings.watching.chunk_size = CHUNK
    settings.watching.label_selectors["", "v1", "pods"] = LABEL_JOB_UID  # all others stay at the API server
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = NothingStored()
    settings.persistence.progress_storage = NoProgress()
    settings.scanning.disabled = bool(namespaces)
    settings.process.ultimate_exiting_timeout = None
    return settings


class NothingStored(kopf.DiffBaseStorage):
    """`on.event` handlers need no earlier version: kopf's default copies each object of an event."""

    def build(self, **_: object) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: object) -> None:
        return None

    def store(self, **_: object) -> None:
        """It is never called."""


class NoProgress(kopf.ProgressStorage):
    """The same of the progress of handlers."""

    def fetch(self, **_: object) -> None:
        return None

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence

    def store(self, **_: object) -> None:
        """It is never called."""

    def purge(self, **_: object) -> None:
        """It is never called."""

    def touch(self, **_: object) -> None:
        """There is nothing to touch."""


def service_account_login(environ: Mapping[str, str]) -> kopf.ConnectionInfo | None:
    """The pod's own service account, by the address from the kubelet: a cluster need not have DNS."""
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
