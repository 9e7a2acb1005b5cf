"""Tokens of pods' own service accounts for one red-box, each bound to its pod.

resourced speaks to red-box about a job only as the pod's account may. A token dies with its pod, and is kept
only while somebody uses it: two streams of one log, or a hundred readers, ask for one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from redbox_kube.api.objects import ObjectClient, PodRef
from redbox_resourced.pods.pod_view import BoundPod

LIFETIME_S = 600  # the shortest that Kubernetes gives
USED_FOR_S = 400.0


@dataclass(eq=False)
class PodToken:
    """A RedboxClient calls it before each request."""

    objects: ObjectClient
    pod: BoundPod
    audience: str
    _token: str = ""
    _made_at: float = 0.0
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self) -> str:
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if not self._token or now - self._made_at > USED_FOR_S:
                self._token = await self.objects.token_for(
                    self.pod.namespace,
                    self.pod.account,
                    self.audience,
                    seconds=LIFETIME_S,
                    pod=PodRef(self.pod.name, self.pod.uid),
                )
                self._made_at = now
            return self._token


class PodTokens:
    """The tokens in use."""

    def __init__(self, objects: ObjectClient) -> None:
        self._objects = objects
        self._used: WeakValueDictionary[tuple[str, str], PodToken] = WeakValueDictionary()

    def of(self, pod: BoundPod, audience: str) -> PodToken:
        """This pod's, for one red-box."""
        token = self._used.get((pod.uid, audience))
        if token is None:
            token = self._used[pod.uid, audience] = PodToken(self._objects, pod, audience)
        return token
