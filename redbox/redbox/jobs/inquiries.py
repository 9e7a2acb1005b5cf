"""Questions about the cluster rather than about a job: partitions, versions, who one is here.

Answers are kept for a few seconds, so that a crowd of askers is one call; what cannot be refreshed is given
as it was, with the time since when it is stale.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from redbox.domain import Caller, Role
from redbox.jobs.clock import Clock
from redbox.jobs.context import Context
from redbox.jobs.errors import Busy
from redbox.workload import WorkloadFault
from redbox_api.models import Cluster, OwnerRef, Partition, PartitionList, WhoAmI

FRESH_S = 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """An answer, when it was given, and how often it has changed."""

    value: T
    at: datetime
    monotonic: float
    changes: int
    stale: bool = False


class Remembered(Generic[T]):
    """One question, asked at most every few seconds."""

    def __init__(self, ask: Callable[[], Awaitable[T]], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._asking = asyncio.Lock()
        self._known: Known[T] | None = None

    async def get(self) -> Known[T]:
        async with self._asking:
            known = self._known
            if known is None or known.stale or self._clock.monotonic() - known.monotonic >= FRESH_S:
                known = self._known = await self._refreshed(known)
            return known

    async def _refreshed(self, known: Known[T] | None) -> Known[T]:
        try:
            value = await self._ask()
        except (WorkloadFault, TimeoutError) as fault:
            if known is None:
                raise Busy(f"Slurm does not answer: {fault}.", retry_after=5) from fault
            return Known(known.value, known.at, known.monotonic, known.changes, stale=True)
        changed = known is not None and known.value != value
        changes = (known.changes if known else 1) + changed
        return Known(value, self._clock.now(), self._clock.monotonic(), changes)


class Inquiries:
    """The cluster, its partitions, and the caller's place in it."""

    def __init__(self, context: Context, take_turn: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._workload = context.workload
        self._take_turn = take_turn
        clock = context.clock
        self._cluster = Remembered(self._ask_cluster, clock)
        self._partitions = Remembered(self._ask_partitions, clock)

    async def cluster(self) -> Cluster:
        known = await self._cluster.get()
        return known.value.model_copy(update={"stale_since": known.at if known.stale else None})

    async def partitions(self, caller: Caller) -> PartitionList:
        """Those that the caller's rule allows."""
        known = await self._partitions.get()
        allowed = caller.limits.partitions
        items = [p for p in known.value if allowed is None or p.name in allowed]
        stale_since = known.at if known.stale else None
        return PartitionList(
            items=items,
            revision=f"{self._context.ledger.table.epoch}.p{known.changes}",
            stale_since=stale_since,
        )

    async def whoami(self, caller: Caller) -> WhoAmI:
        """Identity, roles, and the Slurm accounts and QOS of the mapped user."""
        owner, limits = caller.owner, caller.limits
        associations = {}
        if caller.user is not None and caller.may(Role.SUBMIT):
            associations = dict(await self._context.ask(self._workload.associations(caller.user)))
        return WhoAmI(
            identity=caller.identity,
            owner=OwnerRef(cluster=owner.cluster, namespace=owner.namespace, account=owner.account),
            user=caller.user.name if caller.user else None,
            roles=sorted(caller.roles),
            accounts=None if limits.accounts is None else sorted(limits.accounts),
            partitions=None if limits.partitions is None else sorted(limits.partitions),
            slurm_accounts=sorted(associations),
            slurm_qos=sorted({qos for several in associations.values() for qos in several}),
        )

    async def _ask_cluster(self) -> Cluster:
        await self._take_turn()
        return await self._context.ask(self._workload.cluster())

    async def _ask_partitions(self) -> tuple[Partition, ...]:
        await self._take_turn()
        return await self._context.ask(self._workload.partitions())
