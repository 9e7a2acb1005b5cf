"""What Prometheus reads of the operator: words of the domain, never a user's or a job's name."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 86400)
LAGS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class OperatorMetrics:
    """Counters of what happens, and a look at what there is."""

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
            "Looks at a SlurmJob or SlurmCluster that did not come to their end, by what was in the way.",
            ("cause",),
            registry=self.registry,
        )
        self.submitted_after = Histogram(
            "redbox_operator_submit_seconds",
            "From a SlurmJob's creation to its job in Slurm being known.",
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
            "From red-box's word of a change to the status that tells it.",
            buckets=LAGS,
            registry=self.registry,
        )
        self.sweep_seconds = Histogram(
            "redbox_operator_sweep_seconds",
            "Duration of a comparison of all that is known with all that there is.",
            buckets=LAGS,
            registry=self.registry,
        )
        self.missed = Counter(
            "redbox_operator_missed",
            "Differences that a sweep found, which no watch had told.",
            ("kind",),
            registry=self.registry,
        )

    def watch(
        self,
        *,
        phases: Callable[[], Iterable[str]],
        reachable: Callable[[], dict[str, bool]],
        waiting: Callable[[], int],
    ) -> None:
        """Ask these, too, whenever somebody reads the metrics."""
        self.registry.register(_Present(phases, reachable, waiting))


class _Present(Collector):
    """What there is at this moment."""

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
        """Nothing in advance: registering must not count all jobs."""
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
        yield GaugeMetricFamily(
            "redbox_operator_waiting", "SlurmJobs that are to be looked at.", self._waiting()
        )
