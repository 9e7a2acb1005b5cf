"""Tokens of pods' own service accounts, each bound to its pod and to one red-box.

resourced calls red-box about a job only with the rights of the pod's account. A token ends with its pod, and
is kept only while a client uses it: two streams of one log, or a hundred readers, share one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from redbox_kube.api.objects import ObjectClient, PodRef
from redbox_resourced.pods.pod_view import BoundPod

LIFETIME_S = 600  # the shortest that Kubernetes gives
RENEW_AFTER_S = 400.0


@dataclass(eq=False)
class PodToken:
    """A RedboxClient calls it before each request."""

    objects: ObjectClient
    pod: BoundPod
    audience: str
    _token: str = ""
    _issued_at: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self) -> str:
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if not self._token or now - self._issued_at > RENEW_AFTER_S:
                self._token = await self.objects.token_for(
                    self.pod.namespace,
                    self.pod.account,
                    self.audience,
                    seconds=LIFETIME_S,
                    pod=PodRef(self.pod.name, self.pod.uid),
                )
                self._issued_at = now
            return self._token


class PodTokens:
    """All tokens in use."""

    def __init__(self, objects: ObjectClient) -> None:
        self._objects = objects
        self._used: WeakValueDictionary[tuple[str, str], PodToken] = WeakValueDictionary()

    def of(self, pod: BoundPod, audience: str) -> PodToken:
        """The pod's token for one red-box."""
        token = self._used.get((pod.uid, audience))
        if token is None:
            token = self._used[pod.uid, audience] = PodToken(self._objects, pod, audience)
        return token
