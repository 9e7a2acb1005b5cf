"""Reports that the serving certificate ends soon, or has ended: an event of each SlurmCluster, and a gauge.

An API server that verifies it then gets no answer of the kubelet API: `kubectl logs`, `exec` and `top` of
pods on virtual nodes hang for 45 s, and fail without a reason. Events live for an hour, so there is a new one
every day before the end, and every hour after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import structlog
from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from redbox_clusters.slurm_cluster import SLURM_CLUSTERS, SlurmCluster
from redbox_kube.api.events import WARNING, Event
from redbox_kube.api.objects import ApiError, ObjectClient, ResourcePath
from redbox_resourced.kubelet.serving_certificate import CertificateLife
from redbox_resourced.nodes.node_view import MANAGER

log = structlog.get_logger(__name__)
WARNED_BEFORE = timedelta(days=7)
CHECKED_EVERY_S = 60.0
EXPIRES, EXPIRED = "CertificateExpires", "CertificateExpired"
NOT_SIGNED = "CertificateNotSigned"
CURE = (
    "see the Ready condition of a virtual node and the log of resourced, approve its "
    "CertificateSigningRequest, or renew the Secret that the chart's resourced.servingSecret names"
)


@dataclass(frozen=True)
class CertificateWarning:
    """What is wrong with it, in one word and in a sentence."""

    reason: str
    message: str


def warning_of(life: CertificateLife | None, now: datetime) -> CertificateWarning | None:
    """None while it is valid for a week, or its renewal is not due: one of a day lives on that."""
    if life is None or now < max(life.renewal, life.end - WARNED_BEFORE):
        return None
    end = f"{life.end:%Y-%m-%d %H:%M} UTC"
    if now < life.end:
        message = f"The serving certificate of the virtual nodes ends at {end}, and is not renewed: {CURE}."
        return CertificateWarning(EXPIRES, message)
    message = (
        f"The serving certificate of the virtual nodes has ended at {end}: kubectl logs, exec and top of "
        f"pods on them fail where the API server verifies it; {CURE}."
    )
    return CertificateWarning(EXPIRED, message)


@dataclass
class CertificateExpiry:
    """Looks at it every minute."""

    objects: ObjectClient
    life: Callable[[], CertificateLife | None]
    clusters: Callable[[], Iterable[SlurmCluster]]
    """Those with virtual nodes."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _written: dict[str, str] = field(default_factory=dict)

    @property
    def warning(self) -> CertificateWarning | None:
        return warning_of(self.life(), self.now())

    async def run(self) -> None:
        while True:
            await self.report()
            await asyncio.sleep(CHECKED_EVERY_S)

    async def report(self) -> None:
        """Write the events that are due."""
        warning = self.warning
        if warning is None:
            return
        for cluster in tuple(self.clusters()):
            event = _event(cluster, warning, self.now())
            if self._written.get(cluster.name) == event.name:
                continue
            self._written[cluster.name] = event.name
            log.warning("serving certificate", reason=warning.reason, message=warning.message)
            try:
                await self.objects.create(event.where, event.body(self.now()))  # None: it exists already
            except (ApiError, TimeoutError) as error:
                log.warning("event not written", cluster=cluster.name, error=str(error))


def _event(cluster: SlurmCluster, warning: CertificateWarning, now: datetime) -> Event:
    period = f"{now:%Y-%m-%dT%H}" if warning.reason == EXPIRED else f"{now:%Y-%m-%d}"
    return Event(
        about=ResourcePath(SLURM_CLUSTERS, cluster.name),
        uid=str(cluster.metadata["uid"]),
        change=f"{warning.reason}|{period}",
        severity=WARNING,
        reason=warning.reason,
        message=warning.message,
        action="Serve",
        component=MANAGER,
    )


@dataclass(eq=False)
class CertificateMetrics(Collector):
    """A gauge for Prometheus, once there is a certificate."""

    life: Callable[[], CertificateLife | None]

    def collect(self) -> Iterator[Metric]:
        life = self.life()
        if life is not None:
            yield GaugeMetricFamily(
                "redbox_resourced_serving_certificate_expiration_timestamp_seconds",
                "When the serving certificate of the virtual nodes ends.",
                value=life.end.timestamp(),
            )
