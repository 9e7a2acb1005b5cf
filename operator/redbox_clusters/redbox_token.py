"""Service account tokens for one red-box, renewed well before they expire."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from redbox_kube.api.objects import ObjectClient, PodRef

LIFETIME_S = 3600


@dataclass(frozen=True)
class ServiceAccountName:
    """A service account: the controller's own, or with `pod` that of a pod."""

    namespace: str
    name: str


@dataclass(eq=False)
class RedboxToken:
    """One account's token for one audience, bound to `pod` if given; a RedboxClient calls it."""

    objects: ObjectClient
    account: ServiceAccountName
    audience: str
    pod: PodRef | None = None
    lifetime_s: int = LIFETIME_S
    _token: str = ""
    _issued_at: tuple[float, float] = (0.0, 0.0)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self) -> str:
        async with self._lock:
            now = _clocks()
            age_s = max(at - issued_at for at, issued_at in zip(now, self._issued_at, strict=True))
            if not self._token or age_s > self.lifetime_s * 2 / 3:
                self._token = await self.objects.token_for(
                    self.account.namespace,
                    self.account.name,
                    self.audience,
                    seconds=self.lifetime_s,
                    pod=self.pod,
                )
                self._issued_at = now
            return self._token


def _clocks() -> tuple[float, float]:
    """Two, and the one that has gone further counts: one stands still while a host sleeps, one may be set."""
    return asyncio.get_running_loop().time(), time.time()
