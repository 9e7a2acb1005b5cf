"""The controller's own token for one red-box, renewed well before it expires."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from redbox_kube.api.objects import ObjectClient

LIFETIME_S = 3600
USED_FOR_S = 2400.0


@dataclass(frozen=True)
class ServiceAccountName:
    """The controller's own service account."""

    namespace: str
    name: str


@dataclass
class RedboxToken:
    """The token for one audience; a RedboxClient calls it before each request."""

    objects: ObjectClient
    account: ServiceAccountName
    audience: str
    _token: str = ""
    _issued_at: float = field(default=0.0)

    async def __call__(self) -> str:
        now = asyncio.get_running_loop().time()
        if not self._token or now - self._issued_at > USED_FOR_S:
            self._token = await self.objects.token_for(
                self.account.namespace, self.account.name, self.audience, seconds=LIFETIME_S
            )
            self._issued_at = now
        return self._token
