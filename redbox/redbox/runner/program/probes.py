"""Probes: periodic checks of a container that runs, counted against Kubernetes' thresholds.

A startup probe comes first; the others begin once the container has started. One thread each, which ends with
the container's process.
"""

import threading
import time
from typing import Callable, List, Optional

from redbox.runner.program.handlers import HandlerTarget, run_handler
from redbox.runner.program.processes import ContainerProcess
from redbox.runner.program.rules import Document

STARTUP, LIVENESS, READINESS = "Startup", "Liveness", "Readiness"
END_SEEN_S = 0.1
"""A probe may fail because the container has just ended: then it says nothing."""
FIELDS = {STARTUP: "startupProbe", LIVENESS: "livenessProbe", READINESS: "readinessProbe"}


class ProbeCounter:
    """Results in a row against the two thresholds."""

    def __init__(self, success_threshold: int, failure_threshold: int) -> None:
        self._thresholds = {True: success_threshold, False: failure_threshold}
        self._last: Optional[bool] = None
        self._count = 0

    def add(self, succeeded: bool) -> Optional[bool]:  # noqa: FBT001 # the one thing that is counted
        """Return the result that stands now; None while it is below its threshold."""
        self._count = self._count + 1 if succeeded is self._last else 1
        self._last = succeeded
        return succeeded if self._count >= self._thresholds[succeeded] else None


class ProbedContainer:
    """What probes have found of one start of a container, and whom they tell."""

    def __init__(
        self,
        spec: Document,
        process: ContainerProcess,
        target: HandlerTarget,
        on_change: Callable[[bool, bool], None],
        *,
        on_failure: Callable[[str, str], None],
        on_dead: Callable[[str, Document], None],
    ) -> None:
        self._spec = spec
        self._process = process
        self._target = target
        self._on_change = on_change
        self._on_failure = on_failure
        self._on_dead = on_dead
        self._lock = threading.Lock()
        self.started = threading.Event()
        self._ready = not spec.get(FIELDS[READINESS])
        if not spec.get(FIELDS[STARTUP]):
            self.started.set()

    def begin(self) -> List[threading.Thread]:
        self._publish()
        threads = [
            threading.Thread(target=self._watch, args=(kind, self._spec[field]), daemon=True)
            for kind, field in FIELDS.items()
            if self._spec.get(field)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _publish(self) -> None:
        with self._lock:
            started = self.started.is_set()
            self._on_change(started, started and self._ready)

    def _watch(self, kind: str, probe: Document) -> None:
        """Probe until the container ends, or until there is nothing left to find out."""
        while kind != STARTUP and not self.started.wait(0.2):
            if self._process.ended.is_set():
                return
        counter = ProbeCounter(probe.get("successThreshold", 1), probe.get("failureThreshold", 3))
        due = time.monotonic() + self._process.started_at + probe.get("initialDelayS", 0) - time.time()
        while not self._process.ended.wait(max(0.0, due - time.monotonic())):
            due = max(due, time.monotonic()) + probe.get("periodS", 10)
            succeeded, message = run_handler(probe, self._target, probe.get("timeoutS", 1))
            if self._process.ended.wait(0 if succeeded else END_SEEN_S):
                return
            if kind != READINESS and self._process.stopping.is_set():
                return  # as kubelets do: its grace period is its own
            if not succeeded:
                self._on_failure(kind, message)
            result = counter.add(succeeded)
            if result is not None and self._conclude(kind, probe, succeeded=result):
                return

    def _conclude(self, kind: str, probe: Document, *, succeeded: bool) -> bool:
        """Act on a result that stands; whether this probe has nothing more to find out."""
        if kind == READINESS:
            self._ready = succeeded
            self._publish()
            return False
        if not succeeded:
            self._on_dead(kind, probe)
            return True
        if kind == STARTUP:
            self.started.set()
            self._publish()
            return True
        return False
