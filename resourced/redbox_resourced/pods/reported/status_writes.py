"""Writes statuses of pods: only what has changed, not too often of one pod, and each namespace in its turn.

What a pod that runs reports is its user's word, and each change of it is a write to etcd. So many of one pod
are written at once, and then one in some seconds: what is held back is not lost, because the pod is then
reconciled once more and shown as it is by then. Its last status never waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import structlog

from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, ResourcePath
from redbox_kube.runtime.fair_slots import FairSlots
from redbox_resourced.pods.pod_view import ENDED, BoundPod, digest_of

log = structlog.get_logger(__name__)
AT_ONCE, OF_A_NAMESPACE = 32, 8
BURST = 10
REFILL_S = 2.0


@dataclass
class StatusBudget:
    """How many statuses of a pod may be written now, and when that was counted."""

    left: float
    counted_at: float


class PodStatusWriter:
    """Of all pods on virtual nodes."""

    def __init__(
        self, objects: ObjectClient, host: str, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.slots = FairSlots(AT_ONCE, OF_A_NAMESPACE)
        self._objects = objects
        self._host = host
        self._now = now
        self._budgets: dict[str, StatusBudget] = {}
        """By the pod's uid."""
        self._held: set[str] = set()
        """Uids of pods whose newest status is not written."""

    async def write(self, pod: BoundPod, status: Object) -> None:
        """Write it, if it is not there and the pod has not had too many; see `due_in`."""
        status = {"hostIP": self._host, "hostIPs": [{"ip": self._host}], **status}
        self._held.discard(pod.uid)
        if digest_of(status) == pod.status_digest:
            return
        if status["phase"] not in ENDED and not self._take(pod.uid):
            self._held.add(pod.uid)
            return
        body = {"metadata": {"namespace": pod.namespace, "uid": pod.uid}, "status": status}
        async with self.slots.of(pod.namespace):
            try:
                path = ResourcePath("Pod", pod.name, pod.namespace)
                await self._objects.apply(path, body, subresource="status")
            except ApiRefused as refusal:
                if refusal.status == HTTPStatus.UNPROCESSABLE_ENTITY:  # only another status can be accepted
                    log.warning("status refused", namespace=pod.namespace, name=pod.name, error=str(refusal))
                elif refusal.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                    raise  # else deleted, or replaced by another of its name: an event follows

    def due_in(self, pod: BoundPod) -> float | None:
        """When a status that was held back may be written; None where none was."""
        if pod.uid not in self._held:
            return None
        budget = self._budgets[pod.uid]
        return max(0.0, (1 - budget.left) * REFILL_S - (self._now() - budget.counted_at))

    def forget(self, pod: BoundPod) -> None:
        self._budgets.pop(pod.uid, None)
        self._held.discard(pod.uid)

    def _take(self, uid: str) -> bool:
        now = self._now()
        budget = self._budgets.setdefault(uid, StatusBudget(BURST, now))
        budget.left = min(BURST, budget.left + (now - budget.counted_at) / REFILL_S)
        budget.counted_at = now
        if budget.left < 1:
            return False
        budget.left -= 1
        return True
