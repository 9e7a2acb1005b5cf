"""The usage of pods' jobs, requested from red-box on demand.

One request covers all pods of a service account, and its answer is cached for a while: metrics-server queries
each virtual node separately, and all get the same answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from redbox_api.client import RedboxClient
from redbox_api.errors import RedboxError
from redbox_api.models import JobUsage
from redbox_kube.api.objects import ApiError
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods.pod_view import BoundPod
from redbox_resourced.pods.submission import PodSubmitter
from redbox_shared.keyed_semaphores import FairSlots

FRESH_S = 15.0
REQUEST_S = 4.0
ALL_S = 8.0  # metrics-server waits for ten seconds
AT_ONCE, OF_A_NAMESPACE = 16, 4
"""Of a user's accounts each takes long while that user's agent hangs."""

AccountKey = tuple[str, str, str]
"""Cluster (as in the node's name), namespace, account."""
TokenOf = tuple[str, RedboxClient]
"""The uid of the pod whose token a client shows, and the cluster's client, whose connections it uses."""


@dataclass
class PodUsage:
    """Cached by pod; where a request fails, the last numbers stay, with their time."""

    pods: Callable[[], Iterable[BoundPod]]
    clusters: ClusterRegistry
    submitter: PodSubmitter
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _due: float = float("-inf")
    _usage: dict[str, JobUsage] = field(default_factory=dict)
    _clients: dict[AccountKey, tuple[TokenOf, RedboxClient]] = field(default_factory=dict)
    _warnings: GroupedWarnings = field(default_factory=lambda: GroupedWarnings("usage not read"))

    async def now(self) -> Mapping[str, JobUsage]:
        """By the pod's uid."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now >= self._due:
                await self._request_all()
                self._due = now + FRESH_S
            return self._usage

    async def _request_all(self) -> None:
        accounts: defaultdict[AccountKey, list[BoundPod]] = defaultdict(list)
        for pod in self.pods():
            if pod.has_job and pod.phase == "Running":
                accounts[pod.node.partition(".")[0], pod.namespace, pod.account].append(pod)
        for idle in self._clients.keys() - accounts.keys():
            del self._clients[idle]
            self._warnings.recovered("/".join(idle))
        running = {pod.uid for pods in accounts.values() for pod in pods}
        self._usage = {uid: used for uid, used in self._usage.items() if uid in running}
        slots = FairSlots(AT_ONCE, OF_A_NAMESPACE)
        with contextlib.suppress(TimeoutError):  # for those that were too slow the last numbers stay
            async with asyncio.timeout(ALL_S), asyncio.TaskGroup() as group:
                for account, pods in accounts.items():
                    group.create_task(self._request(account, pods, slots))

    async def _request(self, account: AccountKey, pods: list[BoundPod], slots: FairSlots) -> None:
        client = self._client(account, pods)
        if client is None:
            return
        try:
            _, namespace, _ = account
            async with slots.of(namespace), asyncio.timeout(REQUEST_S):
                usage = await client.usage()
        except (RedboxError, ApiError, TimeoutError) as error:
            self._warnings.failed("/".join(account), error)
            return
        self._warnings.recovered("/".join(account))
        by_job = {(used.key, used.attempt): used for used in usage.items}
        for pod in pods:
            if used := by_job.get((pod.key, pod.attempt)):
                self._usage[pod.uid] = used

    def _client(self, account: AccountKey, pods: list[BoundPod]) -> RedboxClient | None:
        """The same client, with its token, as long as its pod runs and the SlurmCluster's client stays."""
        connection = self.clusters.of_node(pods[0].node)
        if connection is None:
            return None
        oldest = min(pods, key=lambda pod: (pod.created_at, pod.uid))
        wanted = (oldest.uid, connection.client)
        token_of, client = self._clients.get(account, (None, None))
        if client is None or token_of != wanted:
            client = self.submitter.client_for(oldest, connection)
            self._clients[account] = wanted, client
        return client
