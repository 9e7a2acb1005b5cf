"""The preStop hook of slurmd's pod: the container gets its SIGTERM only when no step runs here any more.

slurmd kills its steps on SIGTERM, so this hook is the fence that holds even if nothing asked Slurm before the
deletion (evictions, `kubectl delete`). It works without slurmctld: a slurmstepd process keeps the pod until
its grace period ends. It drains only for itself: the hook of a pod on a lost machine may run late, when
another pod has its name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from redbox_slurmpod.node.record import NodeRecord, SlurmUnavailable, drain, read_node
from redbox_slurmpod.supervision.processes import step_daemons

log = logging.getLogger(__name__)
REASON = "red-box: the pod ends"


@dataclass(frozen=True)
class PollPauses:
    """Between two looks at the processes, two reads of the record, and two attempts to drain."""

    steps_s: float = 0.5
    record_s: float = 1
    drain_s: float = 10


class PreStop:
    """One run of the hook for one node."""

    def __init__(
        self,
        node: str,
        instance_id: str,
        *,
        steps: Callable[[], Collection[int]] = step_daemons,
        pauses: PollPauses = PollPauses(),
    ) -> None:
        self._node = node
        self._instance_id = instance_id
        self._steps = steps
        self._pauses = pauses
        self._drain_again_at = 0.0
        self._over = False
        """Whether nothing is left to drain: it is done, or the node is not this pod's."""

    def run(self) -> None:
        """Return when the container may be ended."""
        while True:
            self._drain()
            if self._steps():
                self._wait_for_steps()
            elif not self._is_busy():
                return
            else:
                time.sleep(self._pauses.record_s)

    def _wait_for_steps(self) -> None:
        """Until they have ended, or another attempt to drain is due."""
        log.info("waiting for the steps of %s", self._node)
        while self._steps() and (self._over or time.monotonic() < self._drain_again_at):
            time.sleep(self._pauses.steps_s)

    def _drain(self) -> None:
        if self._over or time.monotonic() < self._drain_again_at:
            return
        try:
            record = read_node(self._node)
            if record is None or record.drained or record.changes_power or not self._is_ours(record):
                self._over, self._drain_again_at = True, 0
                return
            drain(self._node, REASON)
        except SlurmUnavailable as error:
            log.warning("%s could not be drained, the steps here are waited for: %s", self._node, error)
            self._drain_again_at = time.monotonic() + self._pauses.drain_s
        else:
            log.info("%s is drained", self._node)
            self._over, self._drain_again_at = True, 0

    def _is_busy(self) -> bool:
        """Whether Slurm has jobs on this pod; False where that is unknown, since no step runs here."""
        if time.monotonic() < self._drain_again_at:
            return False  # it has just not answered
        try:
            record = read_node(self._node)
        except SlurmUnavailable:
            return False
        return record is not None and record.busy and not record.changes_power and self._is_ours(record)

    def _is_ours(self, record: NodeRecord) -> bool:
        """An empty id is unknown: it was lost with a power-up, and keeps nobody from draining."""
        return record.instance_id in ("", self._instance_id)
