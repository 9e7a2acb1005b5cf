"""Writes statuses of pods: only what has changed, not too often of one pod, and each namespace in its turn.

What a pod that runs reports is its user's word, and each change of it is a write to etcd. So many of one pod
are written at once, and then one in some seconds: what is held back is not lost, because the pod is then
reconciled once more and shown as it is by then. Details wait for the next change, a last status for nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus

import structlog

from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, ResourcePath
from redbox_kube.runtime.paces import Pace
from redbox_kube.runtime.waiting_details import WaitingDetails
from redbox_resourced.pods.pod_view import ENDED, BoundPod, digest_of, without_details
from redbox_shared.keyed_semaphores import FairSlots
from redbox_shared.printable import printable_texts

log = structlog.get_logger(__name__)
AT_ONCE, OF_A_NAMESPACE = 32, 8
BURST = 10
REFILL_S = 2.0


class PodStatusWriter:
    """Of all pods on virtual nodes."""

    def __init__(
        self, objects: ObjectClient, host: str, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.slots = FairSlots(AT_ONCE, OF_A_NAMESPACE)
        self._objects = objects
        self._host = host
        self._now = now
        self._pace = Pace(BURST, REFILL_S, now)  # by the pod's uid
        self._details = WaitingDetails()
        self._due: dict[str, float] = {}
        """Of pods whose newest status is not written: when it may be, by uid."""

    async def write(self, pod: BoundPod, status: Object) -> None:
        """Write it if it is news, and the pod has not had too many; otherwise see `due_in`."""
        status = {
            "hostIP": self._host,
            "hostIPs": [{"ip": self._host}],
            **printable_texts(status, lines=True),
            **({"observedGeneration": pod.generation} if pod.generation else {}),
        }
        self._due.pop(pod.uid, None)
        if digest_of(status) == pod.status_digest:
            self._details.forget(pod.uid)
            return
        if pause_s := self._pause_s(pod, status):
            self._due[pod.uid] = self._now() + pause_s
            return
        body = {"metadata": {"namespace": pod.namespace, "uid": pod.uid}, "status": status}
        async with self.slots.of(pod.namespace):
            try:
                path = ResourcePath(kinds.POD, pod.name, pod.namespace)
                await self._objects.apply(path, body, subresource="status")
            except ApiRefused as refusal:
                if refusal.status == HTTPStatus.UNPROCESSABLE_ENTITY:  # only another status can be accepted
                    log.warning("status refused", namespace=pod.namespace, name=pod.name, error=str(refusal))
                elif refusal.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                    raise  # else deleted, or replaced by another of its name: an event follows

    def due_in(self, pod: BoundPod) -> float | None:
        """When a status that was held back may be written; None where none was.

        Once it is due this is said once: where it is not written then, as of a pod whose red-box is away, it
        waits for what has the pod reconciled again.
        """
        due = self._due.get(pod.uid)
        if due is None:
            return None
        left = due - self._now()
        if left <= 0:
            del self._due[pod.uid]
        return max(0.0, left)

    def forget(self, pod: BoundPod) -> None:
        self._pace.forget(pod.uid)
        self._details.forget(pod.uid)
        self._due.pop(pod.uid, None)

    def _pause_s(self, pod: BoundPod, status: Object) -> float:
        """Seconds that this status has to wait; 0: it is written now."""
        has_ended = status["phase"] in ENDED
        is_detail = not has_ended and digest_of(without_details(status)) == pod.main_digest
        pause_s = self._details.pause_s(pod.uid, self._now(), is_detail=is_detail)
        return 0.0 if has_ended else pause_s or self._pace.take(pod.uid)
