"""The metrics for Prometheus: counts and times, never with the name of a user or a job.

Events are counted by the methods of ServerMetrics; the current numbers of jobs, agents and streams are
collected when the metrics are read.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from redbox.agents.pool import AgentPoolState
from redbox.core.turns import ShareKind, TurnQueue
from redbox.jobs.record.packed_records import RecordSummary
from redbox.observability.job_audit import AuditEntry

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class ServerMetrics:
    """The counters, and their text format."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "redbox_requests", "Requests answered.", ("method", "route", "status"), registry=self._registry
        )
        self._request_seconds = Histogram(
            "redbox_request_seconds",
            "From a request's head to its response's last byte.",
            ("method", "route"),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._acts = Counter(
            "redbox_acts", "Submits and other acts, by outcome.", ("act", "outcome"), registry=self._registry
        )
        self._audit_lost = Counter(
            "redbox_audit_lines_lost",
            "Audit lines that the audit file could not take; they are in the ordinary log.",
            registry=self._registry,
        )
        self._audit_dropped = Counter(
            "redbox_audit_lines_dropped",
            "Audit lines without an effect beyond their caller's budget; another line counts them.",
            registry=self._registry,
        )
        self._slurm_seconds = Histogram(
            "redbox_slurm_call_seconds",
            "Calls of Slurm's commands.",
            ("command", "answered"),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._session_bytes = Counter(
            "redbox_session_bytes",
            "Bytes of sessions in running jobs, to the job (in) and from it (out).",
            ("direction",),
            registry=self._registry,
        )
        for direction in ("in", "out"):
            self._session_bytes.labels(direction)  # there from the start, at 0
        self._relayed = Counter("redbox_log_bytes", "Bytes of logs that were sent.", registry=self._registry)

    def serves(self, method: str, route: str) -> None:
        """A route's count of defects is there from the start, at 0: the first one is a change, too."""
        self._requests.labels(method, route, int(HTTPStatus.INTERNAL_SERVER_ERROR))

    def request_done(self, method: str, route: str, status: int, took_s: float) -> None:
        self._requests.labels(method, route, status).inc()
        self._request_seconds.labels(method, route).observe(took_s)

    def act_done(self, entry: AuditEntry) -> None:
        self._acts.labels(entry.act, entry.outcome).inc()

    def audit_line_lost(self) -> None:
        self._audit_lost.inc()

    def audit_line_dropped(self) -> None:
        self._audit_dropped.inc()

    def slurm_called(self, command: str, took_s: float, answered: bool) -> None:  # noqa: FBT001 (the caller's form)
        self._slurm_seconds.labels(command, str(answered).lower()).observe(took_s)

    def bytes_relayed(self, count: int) -> None:
        self._relayed.inc(count)

    def session_ended(self, bytes_in: int, bytes_out: int) -> None:
        self._session_bytes.labels("in").inc(bytes_in)
        self._session_bytes.labels("out").inc(bytes_out)

    def collect_from(self, collector: Collector) -> None:
        self._registry.register(collector)

    def exposition(self) -> bytes:
        return generate_latest(self._registry)


@dataclass(frozen=True, eq=False)
class TurnsCollector(Collector):
    """How long work waited for others, and what it used of the event loop, by the kind of its share."""

    turns: TurnQueue[Any]
    dropped: Callable[[], int]

    def describe(self) -> Iterator[Metric]:
        """Return nothing, as StateCollector does."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        waited = CounterMetricFamily(
            "redbox_turn_wait_seconds", "Seconds that work waited for the turns of others.", labels=["queue"]
        )
        used = CounterMetricFamily(
            "redbox_turn_used_seconds", "Seconds of the event loop that work used.", labels=["queue"]
        )
        for kind in ShareKind:
            waited.add_metric([kind.value], self.turns.waited_s[kind])
            used.add_metric([kind.value], self.turns.used_s[kind])
        yield waited
        yield used
        yield CounterMetricFamily(
            "redbox_connections_dropped",
            "Connections closed because too many had no caller yet.",
            self.dropped(),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class StateCollector(Collector):
    """The current numbers of jobs, agents and streams."""

    jobs: Iterable[RecordSummary]
    stale_s: Callable[[], float]
    certificate_ends: Callable[[], float | None]
    agents: Callable[[], AgentPoolState]
    streams: Callable[[], int]
    sessions: Callable[[], int]
    forwarded: Callable[[], int]
    relays: Callable[[], int]
    volumes: Callable[[], int]

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the registration must not count all jobs."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        phases = Tally(record.phase.value for record in self.jobs)
        jobs = GaugeMetricFamily("redbox_jobs", "Jobs in the journal, by phase.", labels=["phase"])
        for phase, count in phases.items():
            jobs.add_metric([phase], count)
        yield jobs
        yield GaugeMetricFamily(
            "redbox_stale_seconds",
            "Age of the last complete poll of Slurm's queue; 0 while it is fresh.",
            self.stale_s(),
        )
        ends = self.certificate_ends()
        if ends is not None:
            yield GaugeMetricFamily(
                "redbox_certificate_ends_timestamp_seconds", "When red-box's own certificate ends.", ends
            )
        yield from self._of_agents(self.agents())
        yield GaugeMetricFamily("redbox_streams", "Followed logs, watches and downloads.", self.streams())
        yield GaugeMetricFamily(
            "redbox_sessions", "Commands in running jobs, and forwards to their ports.", self.sessions()
        )
        yield GaugeMetricFamily(
            "redbox_forwarded_connections", "Connections in all forwards.", self.forwarded()
        )
        yield GaugeMetricFamily("redbox_relays", "Steps on jobs' nodes that carry sessions.", self.relays())
        yield GaugeMetricFamily("redbox_volumes", "Folders of volumes that exist.", self.volumes())

    @staticmethod
    def _of_agents(state: AgentPoolState) -> Iterator[Metric]:
        agents = GaugeMetricFamily("redbox_agents", "Agents of users, by activity.", labels=["doing"])
        agents.add_metric(["busy"], state.busy)
        agents.add_metric(["idle"], state.agents - state.busy)
        agents.add_metric(["starting"], state.starting)
        yield agents
        yield GaugeMetricFamily(
            "redbox_agent_processes", "Agent processes that are not reaped.", state.processes
        )
        yield GaugeMetricFamily(
            "redbox_agent_failing_users", "Users whose agent does not start.", state.failing_users
        )
