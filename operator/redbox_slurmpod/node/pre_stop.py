"""The preStop hook of slurmd's pod: the container gets its SIGTERM only when no step runs here any more.

slurmd kills its steps on SIGTERM, so this hook is the fence that holds even if nothing asked Slurm before the
deletion (evictions, `kubectl delete`). It works without slurmctld: a slurmstepd process keeps the pod until
its grace period ends, and so does a job that Slurm showed before it stopped answering. It drains only for
itself: the hook of a pod on a lost machine may run late, when another pod has its name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from redbox_slurmpod.node.record import NodeRecord, SlurmUnavailable, drain, read_node
from redbox_slurmpod.supervision.processes import has_steps

log = logging.getLogger(__name__)
REASON = "red-box: the pod ends"


@dataclass(frozen=True)
class PollPauses:
    """Between two looks at the processes, and two at the record without and with steps.

    `unconfirmed_s`: how long a pod without a step stays for a drain that Slurm does not confirm.
    """

    steps_s: float = 0.5
    record_s: float = 1
    drain_s: float = 10
    unconfirmed_s: float = 120


class PreStop:
    """One run of the hook for one node."""

    def __init__(
        self,
        node: str,
        instance_id: str,
        *,
        has_steps: Callable[[], object] = has_steps,
        pauses: PollPauses = PollPauses(),
    ) -> None:
        self._node = node
        self._instance_id = instance_id
        self._has_steps = has_steps
        self._pauses = pauses
        self._is_free = False
        self._is_drained = False
        self._is_busy = False
        """By the last answer: unknown after busy stays busy."""
        self._is_foreign = False
        """The record is another pod's: the only answer that cannot change."""

    def run(self) -> None:
        """Return when the container may be ended."""
        while True:
            self._wait_for_steps()
            if self._is_released():
                return

    def _wait_for_steps(self) -> None:
        """Until none runs; an administrator may RESUME the node meanwhile, so its drain is looked after."""
        look_at = 0.0
        while self._has_steps():
            if time.monotonic() >= look_at:
                log.info("waiting for the steps of %s", self._node)
                self._look()
                look_at = time.monotonic() + self._pauses.drain_s
            time.sleep(self._pauses.steps_s)

    def _is_released(self) -> bool:
        """Whether the pod may go; False when a step has begun."""
        give_up_at = time.monotonic() + self._pauses.unconfirmed_s
        self._look()
        while not self._is_free:
            if not self._is_busy and time.monotonic() >= give_up_at:
                log.warning("Slurm does not confirm the drain of %s, and no step runs here", self._node)
                return True
            time.sleep(self._pauses.record_s)
            if self._has_steps():
                return False
            self._look()
        return True

    def _look(self) -> None:
        """Read the record and drain the node if it is not; free is only what was read after that."""
        if self._is_foreign:
            return
        self._is_free = False
        try:
            self._judge(read_node(self._node))
            if not self._is_free and not self._is_drained:
                drain(self._node, REASON)
                log.info("%s is drained", self._node)
                self._judge(read_node(self._node))
        except SlurmUnavailable as error:
            log.warning("%s could not be drained: %s", self._node, error)

    def _judge(self, record: NodeRecord | None) -> None:
        if record is None or record.changes_power or not self._is_ours(record):
            self._is_foreign = record is not None and not self._is_ours(record)
            self._is_busy, self._is_free = False, True
        else:
            self._is_drained, self._is_busy = record.drained, record.busy
            self._is_free = record.drained and not record.busy

    def _is_ours(self, record: NodeRecord) -> bool:
        """An empty id is unknown: it was lost with a power-up, and keeps nobody from draining."""
        return record.instance_id in ("", self._instance_id)
