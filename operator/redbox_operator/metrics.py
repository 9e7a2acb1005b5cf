"""The operator's metrics for Prometheus, without names of users or jobs in labels."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from redbox_kube.runtime.clock import now
from redbox_operator.api.slurmjob_status import SlurmJobStatus

SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 86400)
LAGS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class OperatorMetrics:
    """Counters and histograms, and gauges that are collected when they are scraped."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.writes = Counter(
            "redbox_operator_writes",
            "Writes to the API server, by kind and verb.",
            ("kind", "verb"),
            registry=self.registry,
        )
        self.errors = Counter(
            "redbox_operator_errors",
            "Reconciliations of SlurmJobs that failed, and objects that could not be read, by cause.",
            ("cause",),
            registry=self.registry,
        )
        self.submitted_after = Histogram(
            "redbox_operator_submit_seconds",
            "From a SlurmJob's creation until its status has Slurm's job id.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.queued_for = Histogram(
            "redbox_operator_queue_seconds",
            "From a job's submission to its start, by Slurm's clock.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.status_lag = Histogram(
            "redbox_operator_status_lag_seconds",
            "From a change in red-box's feed until it is written to the status.",
            buckets=LAGS,
            registry=self.registry,
        )
        self.sweep_seconds = Histogram(
            "redbox_operator_sweep_seconds",
            "Duration of a resync, which compares the object cache with lists of all objects.",
            buckets=LAGS,
            registry=self.registry,
        )
        self.missed = Counter(
            "redbox_operator_missed",
            "Differences that a resync found, which no watch had shown.",
            ("kind",),
            registry=self.registry,
        )

    def observe_status(
        self, lag_s: float | None, before: SlurmJobStatus, after: SlurmJobStatus, created: str
    ) -> None:
        """A status was written, `lag_s` after the change at red-box that it has."""
        if lag_s is not None:
            self.status_lag.observe(lag_s)
        if after.job_id and not before.job_id and after.attempts == 1:
            self.submitted_after.observe((now() - datetime.fromisoformat(created)).total_seconds())
        if after.started_at and not before.started_at and after.submitted_at:
            self.queued_for.observe((after.started_at - after.submitted_at).total_seconds())

    def watch(
        self,
        *,
        phases: Callable[[], Iterable[str]],
        reachable: Callable[[], dict[str, bool]],
        waiting: Callable[[], int],
    ) -> None:
        """Collect these gauges at each scrape."""
        self.registry.register(_Gauges(phases, reachable, waiting))


class _Gauges(Collector):
    """Gauges that are computed at each scrape."""

    def __init__(
        self,
        phases: Callable[[], Iterable[str]],
        reachable: Callable[[], dict[str, bool]],
        waiting: Callable[[], int],
    ) -> None:
        self._phases = phases
        self._reachable = reachable
        self._waiting = waiting

    def describe(self) -> Iterator[Metric]:
        """Nothing: registering must not count all jobs."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("redbox_operator_slurmjobs", "SlurmJobs, by phase.", labels=["phase"])
        for phase, count in Tally(self._phases()).items():
            jobs.add_metric([phase], count)
        yield jobs
        name = "redbox_operator_cluster_reachable"
        clusters = GaugeMetricFamily(name, "Whether a SlurmCluster's red-box answers.", labels=["cluster"])
        for cluster, reachable in self._reachable().items():
            clusters.add_metric([cluster], float(reachable))
        yield clusters
        yield GaugeMetricFamily("redbox_operator_waiting", "SlurmJobs in the queue.", self._waiting())
