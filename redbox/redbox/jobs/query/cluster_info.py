"""Queries about the cluster rather than about a job: versions, nodes, and the caller's place in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redbox.core.domain import Caller, Role
from redbox.jobs.context import Context, current
from redbox_api.models import Cluster, OwnerRef, WhoAmI


class ClusterInfo:
    """The cluster, and what a caller may use of it."""

    def __init__(self, context: Context, take_turn: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._take_turn = take_turn
        self._cluster = context.cached(self._fetch)

    async def cluster(self) -> Cluster:
        cached = await current(self._cluster)
        return cached.value.model_copy(update={"stale_since": cached.stale_since})

    async def whoami(self, caller: Caller) -> WhoAmI:
        """Identity, roles, and the Slurm accounts and QOS of the mapped user."""
        owner, limits = caller.owner, caller.limits
        associations = {}
        if caller.user is not None and caller.may(Role.SUBMIT):
            associations = dict(await self._context.call(self._context.workload.associations(caller.user)))
        return WhoAmI(
            identity=caller.identity,
            owner=OwnerRef(cluster=owner.cluster, namespace=owner.namespace, account=owner.account),
            user=caller.user.name if caller.user else None,
            roles=sorted(caller.roles),
            accounts=None if limits.accounts is None else sorted(limits.accounts),
            partitions=None if limits.partitions is None else sorted(limits.partitions),
            slurm_accounts=sorted(associations),
            slurm_qos=sorted({qos for account_qos in associations.values() for qos in account_qos}),
        )

    async def _fetch(self) -> Cluster:
        await self._take_turn()
        return await self._context.call(self._context.workload.cluster())
