"""Queries about the cluster rather than about a job: versions, nodes, and the caller's place in it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial

from redbox.core.domain import Caller, Role, UnixUser
from redbox.core.ttl_cache import TtlCache
from redbox.jobs.context import Context, current
from redbox_api.models import Cluster, OwnerRef, WhoAmI

MAX_USERS = 1000  # whose accounts are kept for a few seconds


class ClusterInfo:
    """The cluster, and what a caller may use of it."""

    def __init__(self, context: Context, take_turn: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._take_turn = take_turn
        self._cluster = context.cached(self._fetch)
        self._associations: OrderedDict[UnixUser, TtlCache[dict[str, tuple[str, ...]]]] = OrderedDict()

    async def cluster(self) -> Cluster:
        cached = await current(self._cluster)
        return cached.value.model_copy(update={"stale_since": cached.stale_since})

    async def whoami(self, caller: Caller) -> WhoAmI:
        """Identity, roles, and the Slurm accounts and QOS of the mapped user."""
        owner, limits = caller.owner, caller.limits
        associations = {}
        if caller.user is not None and caller.may(Role.SUBMIT):
            associations = await self._associations_of(caller.user).get()
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

    def _associations_of(self, user: UnixUser) -> TtlCache[dict[str, tuple[str, ...]]]:
        """Each query starts a process of the user's: many callers in parallel share one."""
        if user not in self._associations:
            self._associations[user] = self._context.cached(partial(self._fetch_associations, user))
        self._associations.move_to_end(user)
        if len(self._associations) > MAX_USERS:
            self._associations.popitem(last=False)
        return self._associations[user]

    async def _fetch_associations(self, user: UnixUser) -> dict[str, tuple[str, ...]]:
        return dict(await self._context.call(self._context.workload.associations(user)))

    async def _fetch(self) -> Cluster:
        await self._take_turn()
        return await self._context.call(self._context.workload.cluster())
