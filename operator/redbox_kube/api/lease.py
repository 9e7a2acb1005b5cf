"""One leader at a time: a Lease that is held before the first write, and whose loss ends the process.

Its times are judged by this process's own monotonic clock, from the moment at which a record was seen to
change, so that no two clocks have to agree. A holder stops writing well before another may begin: it gives
up `GIVES_UP_S` after its last renewal, others wait for `HELD_S`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from redbox_kube.api.objects import ApiError, Object, ObjectClient, ResourcePath

log = structlog.get_logger(__name__)
API_VERSION = "coordination.k8s.io/v1"
HELD_S = 30.0
GIVES_UP_S = 20.0
EVERY_S = 5.0


class LeaseLost(Exception):
    """Another holds the Lease, or it could not be renewed in time: this process may write no more."""


@dataclass
class Lease:
    """A Lease of one name, and whoever would hold it.

    A container that is started again in its pod has the same holder, and goes on at once: the one before is
    certainly dead.
    """

    objects: ObjectClient
    namespace: str
    name: str
    holder: str = field(default_factory=socket.gethostname)
    leader: str = ""
    """Whoever was seen to hold it at the last look; nobody where that failed."""
    _seen: tuple[str, str] | None = None
    _seen_at: float = 0.0
    _renewed_at: float = 0.0

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Wait until it is ours; LeaseLost ends what is done inside as soon as it may be another's."""
        await self._acquire()
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self._keep())
                yield
                keeping.cancel()
        finally:
            await self._release()

    async def _acquire(self) -> None:
        waits = False
        while True:
            try:
                holder = await self._try()
            except ApiError as error:
                self.leader = ""
                log.warning("lease", name=self.name, error=str(error))
            else:
                self.leader = holder
                if holder == self.holder:
                    return
                if not waits:
                    log.info("waiting for the lease", name=self.name, holder=holder)
                waits = True
            await asyncio.sleep(EVERY_S / 2)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            left = self._renewed_at + GIVES_UP_S - _now()
            try:
                async with asyncio.timeout(max(0.1, left)):
                    holder = await self._try()
            except (ApiError, TimeoutError) as error:
                if _now() - self._renewed_at >= GIVES_UP_S:
                    msg = f"Lease {self.name} could not be renewed for {GIVES_UP_S:.0f} s: {error}"
                    raise LeaseLost(msg) from error
                continue
            if holder != self.holder:
                raise LeaseLost(f"Lease {self.name} is held by {holder} now")

    async def _try(self) -> str:
        """Take or renew it, if that may be; who holds it now."""
        asked_at = _now()
        lease = await self.objects.get(self._where)
        if lease is None:
            written = await self.objects.create(self._where.all(), self._body({}))
        elif self._may_take(lease):
            written = await self.objects.replace(self._where, self._body(lease))
        else:
            return _holder(lease)
        if written is None:  # somebody was quicker: the next look tells who
            return ""
        self._renewed_at = asked_at
        return _holder(written)

    def _may_take(self, lease: Object) -> bool:
        spec = lease.get("spec", {})
        record = (_holder(lease), str(spec.get("renewTime", "")))
        if record != self._seen:
            self._seen, self._seen_at = record, _now()
        lapsed = _now() - self._seen_at > float(spec.get("leaseDurationSeconds") or HELD_S)
        return _holder(lease) in {"", self.holder} or lapsed

    async def _release(self) -> None:
        """Let the next one begin at once. Where that fails it waits for the Lease to lapse."""
        try:
            async with asyncio.timeout(EVERY_S):
                lease = await self.objects.get(self._where)
                if lease is not None and _holder(lease) == self.holder:
                    freed = {**lease, "spec": {**lease["spec"], "holderIdentity": ""}}
                    await self.objects.replace(self._where, freed)
        except (ApiError, TimeoutError) as error:
            log.warning("lease not released", name=self.name, error=str(error))

    def _body(self, before: Object) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = dict(before.get("spec", {}))
        if spec.get("holderIdentity") != self.holder:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + bool(before)
        spec |= {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": int(HELD_S),
            "renewTime": now,
        }
        metadata = before.get("metadata") or {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": API_VERSION, "kind": "Lease", "metadata": metadata, "spec": spec}

    @property
    def _where(self) -> ResourcePath:
        return ResourcePath("Lease", self.name, self.namespace, API_VERSION)


def _holder(lease: Object) -> str:
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def _now() -> float:
    return asyncio.get_running_loop().time()
