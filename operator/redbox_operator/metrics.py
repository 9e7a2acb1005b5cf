"""The operator's metrics for Prometheus, without names of users or jobs in labels."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from redbox_clusters.slurm_endpoint import is_endpoint
from redbox_kube.runtime.clock import now
from redbox_operator.api.slurmjob_status import SlurmJobStatus

SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 86400)
LAGS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class OperatorMetrics:
    """Counters and histograms, and gauges that are collected when they are scraped."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.writes = counter(
            "redbox_operator_writes", "Writes to the API server, by kind and verb.", ("kind", "verb")
        )
        self.errors = counter(
            "redbox_operator_errors",
            "Reconciliations of SlurmJobs that failed, and objects that could not be read, by cause.",
            ("cause",),
        )
        for cause in ("redbox", "kubernetes", "defect"):
            self.errors.labels(cause)  # there from the start, at 0: the first one is a change, too
        self.submitted_after = histogram(
            "redbox_operator_submit_seconds",
            "From a SlurmJob's creation until its status has Slurm's job id.",
            buckets=SECONDS,
        )
        self.queued_for = histogram(
            "redbox_operator_queue_seconds",
            "From a job's submission to its start, by Slurm's clock.",
            buckets=SECONDS,
        )
        self.status_lag = histogram(
            "redbox_operator_status_lag_seconds",
            "From a change in red-box's feed until it is written to the status.",
            buckets=LAGS,
        )
        self.resync_seconds = histogram(
            "redbox_operator_resync_seconds",
            "Duration of a resync, which compares the object cache with lists of all objects.",
            buckets=LAGS,
        )
        self.missed = counter(
            "redbox_operator_missed", "Differences that a resync found, which no watch had shown.", ("kind",)
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


@dataclass(eq=False)
class StateGauges(Collector):
    """Gauges that are computed at each scrape."""

    phases: Callable[[], Iterable[str]]
    reachable: Callable[[], dict[str, bool]]
    waiting: Callable[[], int]

    def describe(self) -> Iterator[Metric]:
        """Nothing: registering must not count all jobs."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("redbox_operator_slurmjobs", "SlurmJobs, by phase.", labels=["phase"])
        for phase, count in Tally(self.phases()).items():
            jobs.add_metric([phase], count)
        yield jobs
        name = "redbox_operator_cluster_reachable"
        clusters = GaugeMetricFamily(name, "Whether a SlurmCluster's red-box answers.", labels=["cluster"])
        for cluster, reachable in self.reachable().items():
            if not is_endpoint(cluster):  # users make those: they would make time series
                clusters.add_metric([cluster], float(reachable))
        yield clusters
        yield GaugeMetricFamily("redbox_operator_waiting", "SlurmJobs in the queue.", self.waiting())
