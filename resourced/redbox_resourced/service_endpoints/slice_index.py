"""The EndpointSlices of each pod, and a digest of what was written to them: there may be ten thousands."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

from redbox_kube.api.informer import Place
from redbox_kube.api.objects import Object

UNKNOWN = b""
DIGEST_SIZE = 16


class SliceIndex:
    """Slices and pods are of the same namespace."""

    def __init__(self) -> None:
        self._pods: dict[Place, Place] = {}
        self._digests: dict[Place, dict[Place, bytes]] = {}
        """By the pod and the slice."""

    def pod_of(self, where: Place) -> Place | None:
        return self._pods.get(where)

    def of(self, pod: Place) -> Collection[Place]:
        return self._digests.get(pod, {}).keys()

    def add(self, where: Place, pod: Place) -> None:
        """A slice of this pod, whose content is not known or about to change."""
        if self._pods.get(where) != pod:
            self.remove(where)
        self._pods[where] = pod
        self._digests.setdefault(pod, {})[where] = UNKNOWN

    def written(self, where: Place, body: Object) -> None:
        self._digests[self._pods[where]][where] = _digest(body)

    def is_written(self, where: Place, body: Object) -> bool:
        pod = self._pods.get(where)
        return pod is not None and self._digests[pod][where] == _digest(body)

    def remove(self, where: Place) -> None:
        pod = self._pods.pop(where, None)
        if pod is not None:
            del self._digests[pod][where]
            if not self._digests[pod]:
                del self._digests[pod]


def _digest(body: Object) -> bytes:
    return hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=DIGEST_SIZE).digest()
