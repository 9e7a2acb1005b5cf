"""Reasons that outlived what they were for.

Slurm 24.11 without accounting keeps a node's reason when the node is resumed, and every release keeps that of
a busy node; the next job that starts there removes it. A node that reboots meanwhile is DOWN with the old
reason, and one that stops responding with both, as in `disk : Not responding`. Slurm's own reason is put in
its place, or such a node would be taken for one that its administrator has set DOWN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from redbox_hosting.slurm.answers import RestNode

NOT_RESPONDING, REBOOTED = "Not responding", "Node unexpectedly rebooted"
_APPENDED = f" : {NOT_RESPONDING}"
_OUT_OF_SERVICE = frozenset({"DRAIN", "DOWN", "FAIL"})


@dataclass
class OldReasons:
    """Of one cluster: reason and time of each node that was in service with them."""

    _old: dict[str, tuple[str, int | None]] = field(default_factory=dict)

    def corrected(self, nodes: Iterable[RestNode]) -> Iterator[RestNode]:
        """The nodes of one answer, with the reasons that hold."""
        for node in nodes:
            if not node.reason or not node.state & _OUT_OF_SERVICE:
                self._keep(node)
                yield node
            else:
                reason = self._reason_that_holds(node)
                yield node if reason == node.reason else node.model_copy(update={"reason": reason})

    def _keep(self, node: RestNode) -> None:
        if node.reason:
            self._old[node.name] = node.reason, node.reason_changed_at
        else:
            self._old.pop(node.name, None)

    def _reason_that_holds(self, node: RestNode) -> str:
        """An administrator who sets it DOWN again changes the time, too. A drain stays one."""
        if "DOWN" not in node.state or "DRAIN" in node.state:
            return node.reason
        if node.reason.endswith(_APPENDED):
            return NOT_RESPONDING if "NOT_RESPONDING" in node.state else REBOOTED
        is_old = self._old.get(node.name) == (node.reason, node.reason_changed_at)
        return REBOOTED if is_old else node.reason
