"""From a pod that runs to its job's request: the whole Pod, all that it refers to, then the translation.

What the Pod alone shows is refused first, before any Secret is read.

The whole Pod is read for its submit only: of ten thousand pods nothing but a `BoundPod` is kept.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from redbox_api.job_parts import REVEAL_SECRETS
from redbox_api.models import JobRequest
from redbox_clusters.names import ANNOTATION_PARTITION, LABEL_PARTITION
from redbox_clusters.slurm_cluster import PodsSpec
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterConnection
from redbox_resourced.pods.exit_status import JobRefusal
from redbox_resourced.pods.pod_references import (
    ClaimResolver,
    ReferenceMissing,
    read_references,
)
from redbox_resourced.pods.pod_tokens import read_tokens
from redbox_resourced.pods.pod_view import BoundPod
from redbox_resourced.pods.submission_errors import SubmissionPending, SubmissionRejected
from redbox_resourced.translation.api_tokens import renewal_at, token_lifetime_s
from redbox_resourced.translation.errors import UNSUPPORTED, Unsupported
from redbox_resourced.translation.files.live_sources import (
    OBJECTS,
    RENEWED,
    TOKEN,
    Inputs,
    live_parts,
    live_sources,
    object_word,
)
from redbox_resourced.translation.pod import TargetPartition, check_supported
from redbox_resourced.translation.references import PodReferences
from redbox_resourced.volumes.claim_path import ClaimRefused, claim_path
from redbox_shared.keyed_semaphores import FairSlots

AT_ONCE, OF_A_NAMESPACE = 4, 2
"""Pods whose requests are made: what they refer to is in memory meanwhile, up to some 70 MiB for each."""
LARGE = 64 * 1024
"""Bytes of a Pod or of a request, as JSON."""
LARGE_AT_ONCE, LARGE_OF_A_CLUSTER, LARGE_OF_A_NAMESPACE = 8, 6, 4
"""Requests on their way to red-box: one may have 8 MiB, and its body and what is sent of it as much again."""
RequestT = TypeVar("RequestT", bound=BaseModel | None)


class Tenant(NamedTuple):
    """Who waits for a red-box: a namespace's pods on a cluster."""

    cluster: str
    namespace: str


@dataclass(frozen=True)
class RequestMemory:
    """Which requests are in memory at once: red-box may take long, or put them off."""

    _large: FairSlots = field(
        default_factory=lambda: FairSlots(LARGE_AT_ONCE, LARGE_OF_A_CLUSTER, LARGE_OF_A_NAMESPACE)
    )

    @asynccontextmanager
    async def of(
        self, tenant: Tenant, making: FairSlots, make: Callable[[], Awaitable[RequestT]]
    ) -> AsyncIterator[RequestT]:
        """The request of `make`; a large one is made again once it has a place: who waits holds none."""
        async with AsyncExitStack() as held:
            async with making.of(tenant.namespace):
                request = await make()
                size = await asyncio.to_thread(_size_of, request)
            if size > LARGE:
                del request
                await held.enter_async_context(self._large.of(*tenant))
                async with making.of(tenant.namespace):
                    request = await make()
            yield request


def _size_of(request: BaseModel | None) -> int:
    return (
        0
        if request is None
        else len(request.model_dump_json(by_alias=True, exclude_defaults=True, context=REVEAL_SECRETS))
    )


class Translation(Protocol):
    """`translate`: pure; raises Unsupported."""

    def __call__(
        self, pod: Object, references: PodReferences, settings: PodsSpec, partition: TargetPartition
    ) -> JobRequest: ...


@dataclass(frozen=True)
class PodRequests:
    """The requests of pods that run."""

    objects: ObjectClient
    translate: Translation
    token_namespaces: tuple[str, ...] = ()
    """Where the chart lets pods have tokens for the API server."""
    memory: RequestMemory = field(default_factory=RequestMemory)
    _slots: FairSlots = field(default_factory=lambda: FairSlots(AT_ONCE, OF_A_NAMESPACE))

    @asynccontextmanager
    async def of(self, pod: BoundPod, connection: ClusterConnection) -> AsyncIterator[JobRequest]:
        """As long as it is in memory. Raises SubmissionPending or SubmissionRejected."""
        manifest: Object | None = await self._manifest(pod)
        if len(json.dumps(manifest)) > LARGE:
            manifest = None  # as objects it may be 20 MiB: it is read again when it is its turn
        partition = await self.target(pod, connection)

        async def make() -> JobRequest:
            return await self._made(manifest or await self._manifest(pod), partition, pod, connection)

        async with self.made(pod, connection, make) as request:
            yield request

    def made(
        self, pod: BoundPod, connection: ClusterConnection, make: Callable[[], Awaitable[RequestT]]
    ) -> AbstractAsyncContextManager[RequestT]:
        """What `make` makes of what a pod refers to, as long as it is in memory: a request, or an update."""
        return self.memory.of(Tenant(connection.cluster.name, pod.namespace), self._slots, make)

    async def target(self, pod: BoundPod, connection: ClusterConnection) -> TargetPartition:
        """The partition of the pod's node."""
        return _target(await self._partition(pod), connection)

    async def _made(
        self, manifest: Object, partition: TargetPartition, pod: BoundPod, connection: ClusterConnection
    ) -> JobRequest:
        settings = connection.cluster.spec.pods
        try:
            await asyncio.to_thread(check_supported, manifest, settings, partition)  # a pod may have 1.5 MB
            references = await read_references(self.objects, manifest, claim_resolver(pod, connection))
            tokens = await read_tokens(self.objects, manifest, settings, self.token_namespaces)
            given = replace(references, tokens=tokens, inputs=str(inputs_of(manifest, references, tokens)))
            return await asyncio.to_thread(self.translate, manifest, given, settings, partition)
        except ReferenceMissing as missing:
            raise SubmissionPending(missing.reason, str(missing), event=missing.event) from missing
        except Unsupported as unsupported:
            raise SubmissionRejected(JobRefusal(str(unsupported), reason=unsupported.reason)) from unsupported
        except ClaimRefused as refused:
            raise SubmissionRejected(JobRefusal(str(refused), reason=UNSUPPORTED)) from refused
        except ValidationError as error:
            flaw = error.errors(include_url=False, include_input=False)[0]  # an input may be a secret
            sentence = f"{'.'.join(map(str, flaw['loc']))}: {flaw['msg']}"
            raise SubmissionRejected(JobRefusal(sentence, reason=UNSUPPORTED)) from None

    async def _manifest(self, pod: BoundPod) -> Object:
        manifest = await self.objects.get(ResourcePath(kinds.POD, pod.name, pod.namespace))
        if manifest is None or manifest["metadata"]["uid"] != pod.uid:
            raise SubmissionPending("PodGone", "this pod does not exist any more")
        if "deletionTimestamp" in manifest["metadata"]:
            raise SubmissionPending("BeingDeleted", "this pod is being deleted")
        return manifest

    async def _partition(self, pod: BoundPod) -> str:
        """By the node's annotation: the name may not be valid as a label."""
        try:
            node = await self.objects.get(ResourcePath(kinds.NODE, pod.node))
        except ApiRefused as refusal:
            if refusal.status != HTTPStatus.FORBIDDEN:
                raise
            node = None
        metadata = node["metadata"] if node else {}
        name = (metadata.get("annotations") or {}).get(ANNOTATION_PARTITION)
        name = name or (metadata.get("labels") or {}).get(LABEL_PARTITION)
        if not name:
            raise SubmissionPending("NodeGone", f"the virtual node {pod.node} does not exist now")
        return str(name)


def inputs_of(manifest: Object, references: PodReferences, tokens: Mapping[str, str]) -> Inputs:
    """The versions that the pod is made of, as far as they may change later."""
    parts, words = live_parts(manifest), []
    for source in live_sources(parts, has_tokens=bool(tokens)):
        if source.kind in OBJECTS:
            found = references.secrets if source.kind == "secret" else references.config_maps
            words.append(object_word(found.get(source.name)))
        elif source.kind == TOKEN:
            words.append(token_word(token_lifetime_s(manifest, source.source.get("audience") or "")))
        else:
            words.append(parts.fields)
    return Inputs(words, parts.deadline_s)


def token_word(seconds: int) -> str:
    """Of a token that was issued just now."""
    return f"{RENEWED}{renewal_at(seconds, time.time(), random.random())}"  # noqa: S311 (spreads load)


def _target(partition: str, connection: ClusterConnection) -> TargetPartition:
    found = connection.partitions.get(partition)
    if found is None:
        return TargetPartition(partition)
    largest = found.largest_node.mem_mb if found.largest_node else None
    return TargetPartition(partition, found.limits.max_time_s, largest)


def claim_resolver(pod: BoundPod, connection: ClusterConnection) -> ClaimResolver:
    cluster = connection.cluster

    def path_of(claim: Object, volume: Object | None) -> str:
        return claim_path(claim, volume, cluster.name, cluster.spec.pods.mounts, pod.account)

    return path_of
