"""Questions about the cluster rather than about a job: versions, nodes, who one is here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redbox.core.domain import Caller, Role
from redbox.jobs.context import Context
from redbox.jobs.query.ttl_cache import Remembered
from redbox_api.models import Cluster, OwnerRef, WhoAmI


class Inquiries:
    """The cluster, and the caller's place in it."""

    def __init__(self, context: Context, take_turn: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._workload = context.workload
        self._take_turn = take_turn
        self._cluster = Remembered(self._ask_cluster, context.clock, context.settings.partitions_every_s)

    async def cluster(self) -> Cluster:
        known = await self._cluster.get()
        return known.value.model_copy(update={"stale_since": known.stale_since})

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
