"""Leader election: a Lease that is held before the first write, and whose loss ends the process.

Times are measured by this process's own monotonic clock since it observed a change of the record, so that
clocks of two hosts need not agree. A holder stops writing well before another one may begin: it gives up
`GIVES_UP_S` after its last renewal, others wait for `HELD_S`.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiError, Object, ObjectClient, ResourcePath

log = structlog.get_logger(__name__)
HELD_S = 30.0
GIVES_UP_S = 20.0
EVERY_S = 5.0
ANNOTATION_FORMAT = "redbox.dev/object-format"


class LeaseLost(Exception):
    """Another process holds the Lease, or it was not renewed in time: this process must stop writing."""


@dataclass
class LeaseObservation:
    """A Lease as one process observes it: expired when its record has not changed for its duration."""

    _record: tuple[str, str] | None = None
    _since: float = 0.0

    def is_free(self, lease: Object | None) -> bool:
        """Whether it has no holder, or has expired."""
        spec = (lease or {}).get("spec", {})
        record = (str(spec.get("holderIdentity") or ""), str(spec.get("renewTime") or ""))
        if record != self._record:
            self._record, self._since = record, _now()
        return not record[0] or _now() - self._since > float(spec.get("leaseDurationSeconds") or HELD_S)


@dataclass
class Lease:
    """A Lease by name, and this process as a candidate.

    A container that is restarted in its pod has the same identity and continues at once: its predecessor is
    certainly dead.
    """

    objects: ObjectClient
    namespace: str
    name: str
    holder: str = field(default_factory=socket.gethostname)
    object_format: int = 0
    """The format of the objects that this process writes, 0: none. The Lease keeps the newest one."""
    is_outdated: bool = False
    """Whether a process of a newer format has held the Lease."""
    leader: str = ""
    """The holder at the last read; empty where that failed."""
    _observation: LeaseObservation = field(default_factory=LeaseObservation)
    _renewed_at: float = 0.0
    _written: Object | None = None
    """As this process wrote it last: it is renewed by one request, unless somebody else has written it."""

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Acquire it; LeaseLost ends the body as soon as another process may hold it."""
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
                log.warning("lease not acquired", name=self.name, error=str(error))
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
                    self.leader = ""
                    msg = f"Lease {self.name} could not be renewed for {GIVES_UP_S:.0f} s: {error}"
                    raise LeaseLost(msg) from error
                continue
            if holder != self.holder:
                self.leader = holder
                raise LeaseLost(f"Lease {self.name} is held by {holder} now")

    async def _try(self) -> str:
        """Acquire or renew it unless another process holds it; returns its holder."""
        requested_at = _now()
        before, self._written = self._written, None
        if before is not None and (renewed := await self._replace(before)) is not None:
            self._renewed_at, self._written = requested_at, renewed
            return self.holder
        lease = await self.objects.get(self._where)
        if lease is None:
            written = await self.objects.create(self._where.all(), self._body({}))
        elif self._observation.is_free(lease) or _holder(lease) == self.holder:
            written = await self._replace(lease)
        else:
            return _holder(lease)
        if written is None:
            raise ApiError(f"Lease {self.name} was changed by another client at the same moment")
        self._renewed_at, self._written = requested_at, written
        return _holder(written)

    async def _replace(self, lease: Object) -> Object | None:
        """None if it has changed since."""
        return await self.objects.replace(self._where, self._body(lease))

    async def _release(self) -> None:
        """Free it, so that another process can lead at once and need not wait for its expiry."""
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
        spec |= {"holderIdentity": self.holder, "leaseDurationSeconds": int(HELD_S), "renewTime": now}
        metadata = before.get("metadata") or {"name": self.name, "namespace": self.namespace}
        if self.object_format:
            annotations = dict(metadata.get("annotations") or {})
            newest = max(self.object_format, _number(annotations.get(ANNOTATION_FORMAT)))
            self.is_outdated = newest > self.object_format
            metadata = {**metadata, "annotations": {**annotations, ANNOTATION_FORMAT: str(newest)}}
        return {"apiVersion": kinds.LEASE.api_version, "kind": "Lease", "metadata": metadata, "spec": spec}

    @property
    def _where(self) -> ResourcePath:
        return ResourcePath(kinds.LEASE, self.name, self.namespace)


def _number(text: object) -> int:
    """Anybody with the right may have written it."""
    return int(text) if isinstance(text, str) and re.fullmatch("[0-9]{1,9}", text) else 0


def _holder(lease: Object) -> str:
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def _now() -> float:
    return asyncio.get_running_loop().time()
