"""Metrics of controllers, without names of users or objects in labels."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class ControllerMetrics:
    """Those of all controllers in one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waiting = Gauge(
            "redbox_controller_queue_depth",
            "Objects that wait or are reconciled now.",
            ("controller",),
            registry=registry,
        )
        self._seconds = Histogram(
            "redbox_controller_reconcile_seconds",
            "Duration of one reconciliation of one object.",
            ("controller",),
            buckets=SECONDS,
            registry=registry,
        )
        self._errors = Counter(
            "redbox_controller_step_errors",
            "Steps that failed, by name; and of them the defects.",
            ("controller", "step", "cause"),
            registry=registry,
        )

    def follow_queue(self, controller: str, length: Callable[[], int]) -> None:
        self._waiting.labels(controller).set_function(length)

    def reconciled(self, controller: str, seconds: float) -> None:
        self._seconds.labels(controller).observe(seconds)

    def failed(self, controller: str, step: str, *, is_defect: bool) -> None:
        self._errors.labels(controller, step, "defect" if is_defect else "expected").inc()
