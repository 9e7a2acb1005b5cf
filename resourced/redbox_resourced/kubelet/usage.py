"""What the jobs of pods use, asked at red-box when somebody asks for it here.

One question serves all pods of a service account, and its answer is kept for a while: each virtual node is
asked apart by those who gather metrics, and all of them are answered alike.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from redbox_api.client import RedboxClient
from redbox_api.errors import RedboxError
from redbox_api.usage import JobUsage
from redbox_kube.api.objects import ApiError
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods.pod_view import BoundPod, PodRole
from redbox_resourced.pods.submission import PodSubmitter, key_of

FRESH_S = 15.0
ONE_S = 4.0
ALL_S = 8.0  # who gathers metrics waits for ten seconds
AT_ONCE = 16

AccountKey = tuple[str, str, str]
"""Node's cluster as its name has it, namespace, account."""


@dataclass(frozen=True)
class AccountClient:
    """Speaks for a pod, over the connections of its SlurmCluster's client."""

    pod: str
    of: RedboxClient
    client: RedboxClient


class PodUsage:
    """By pod, as last told; what cannot be asked keeps its last numbers, and their time."""

    def __init__(
        self, pods: Callable[[], Iterable[BoundPod]], clusters: ClusterRegistry, submission: PodSubmitter
    ) -> None:
        self._pods = pods
        self._clusters = clusters
        self._submission = submission
        self._asking = asyncio.Lock()
        self._due = float("-inf")
        self._known: dict[str, JobUsage] = {}
        self._speakers: dict[AccountKey, AccountClient] = {}
        self._troubles = GroupedWarnings("no usage")

    async def now(self) -> Mapping[str, JobUsage]:
        """By the pod's uid."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if now >= self._due:
                await self._ask_all()
                self._due = now + FRESH_S
            return self._known

    async def _ask_all(self) -> None:
        askers: defaultdict[AccountKey, list[BoundPod]] = defaultdict(list)
        for pod in self._pods():
            if pod.role is PodRole.JOB and pod.phase == "Running":
                askers[pod.node.partition(".")[0], pod.namespace, pod.account].append(pod)
        for gone in self._speakers.keys() - askers.keys():
            del self._speakers[gone]
            self._troubles.mended("/".join(gone))
        running = {pod.uid for pods in askers.values() for pod in pods}
        self._known = {uid: used for uid, used in self._known.items() if uid in running}
        at_once = asyncio.Semaphore(AT_ONCE)
        with contextlib.suppress(TimeoutError):  # those who were too slow keep their last numbers
            async with asyncio.timeout(ALL_S), asyncio.TaskGroup() as group:
                for asker, pods in askers.items():
                    group.create_task(self._ask(asker, pods, at_once))

    async def _ask(self, asker: AccountKey, pods: list[BoundPod], at_once: asyncio.Semaphore) -> None:
        client = self._client(asker, pods)
        if client is None:
            return
        try:
            async with at_once, asyncio.timeout(ONE_S):
                told = await client.usage()
        except (RedboxError, ApiError, TimeoutError) as error:
            self._troubles.failed("/".join(asker), error)
            return
        self._troubles.mended("/".join(asker))
        by_job = {(used.key, used.attempt): used for used in told.items}
        for pod in pods:
            used = by_job.get((key_of(pod), pod.attempt))
            if used is not None:
                self._known[pod.uid] = used

    def _client(self, asker: AccountKey, pods: list[BoundPod]) -> RedboxClient | None:
        """The same as long as its pod runs and the SlurmCluster does not move: its token is used again."""
        node = self._clusters.of_node(pods[0].node)
        if node is None:
            return None
        speaker = self._speakers.get(asker)
        if speaker is None or speaker.of is not node.client or speaker.pod not in {pod.uid for pod in pods}:
            client = self._submission.speaking_for(pods[0], node)
            speaker = self._speakers[asker] = AccountClient(pods[0].uid, node.client, client)
        return speaker.client
