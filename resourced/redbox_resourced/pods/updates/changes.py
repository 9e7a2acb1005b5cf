"""What a pod's job lacks of the present, and how it is made.

A Secret or ConfigMap that is required and missing, or lacks a required key, changes nothing: as for kubelets,
its files keep their last content, and an event says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from redbox_api.pod_parts import PodUpdate, SourceUpdate
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, PodRef, ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterConnection
from redbox_resourced.pods.pod_request import token_word
from redbox_resourced.pods.pod_view import BoundPod
from redbox_resourced.pods.submission import PodSubmitter
from redbox_resourced.pods.updates.watched_objects import ObjectPlace, WatchedObjects
from redbox_resourced.translation.api_tokens import bounded_life_s, token_seconds
from redbox_resourced.translation.errors import Unsupported, refusals_of
from redbox_resourced.translation.files.live_sources import (
    ABSENT,
    IMMUTABLE,
    OBJECTS,
    RENEWED,
    TOKEN,
    Inputs,
    LiveParts,
    LiveSource,
    live_parts,
    live_sources,
    read_inputs,
    renewal_in,
)
from redbox_resourced.translation.files.volumes import source_files
from redbox_resourced.translation.limits import ByteBudget
from redbox_resourced.translation.pod import LONGEST_S, TargetPartition, references_for_fields
from redbox_resourced.translation.references import PodReferences

MOST_BYTES, MOST_OF_A_SOURCE = 4 * 1024 * 1024, 5 * 1024 * 1024
"""Of one update, with a constant for each file; the next one follows. Red-box takes no more of files."""
MOST_SOURCES = 256


class SourceFailed(Exception):
    """A source whose files keep their content; in the kubelet's words."""

    def __init__(self, source: LiveSource, problem: str, *, may_pass: bool = False) -> None:
        super().__init__(f'MountVolume.SetUp failed for volume "{source.volume}" : {problem}')
        self.may_pass = may_pass or source.kind == TOKEN
        """Without a change that is seen here."""


class Made(NamedTuple):
    """An update, if there is anything to send, and what could not be made, by the number of its source."""

    update: PodUpdate | None
    sources: list[int]
    """Those in the update."""
    failures: dict[int, SourceFailed]


class Content(NamedTuple):
    """What the files of a source are made of, and the word for it."""

    word: str
    references: PodReferences
    manifest: Object = {}
    """For the downward API."""


@dataclass(frozen=True)
class JobInputs:
    """What a job has, beside the pod as it is now."""

    pod: BoundPod
    parts: LiveParts
    words: Sequence[str]
    deadline_s: int | None
    sources: Sequence[LiveSource]
    """One for each word."""

    @property
    def has_sooner_deadline(self) -> bool:
        now, sent = self.parts.deadline_s, self.deadline_s
        return now is not None and (sent is None or now < sent)

    def objects(self) -> Iterator[ObjectPlace]:
        for source, word in zip(self.sources, self.words, strict=True):
            if source.kind in OBJECTS and word != IMMUTABLE:
                yield ObjectPlace(source.kind, self.pod.namespace, source.name)

    def renewal_after(self, now: float) -> int | None:
        """When the next token is renewed."""
        times = map(renewal_in, self.words)
        return min((at for at in times if at is not None and at > now), default=None)


def is_same(word: str, other: str) -> bool:
    """Whether they stand for the same content: metadata alone may have changed."""
    content = word.partition(".")[2]
    return word == other or bool(content and content == other.partition(".")[2])


def inputs_of_job(pod: BoundPod, inputs: str) -> JobInputs | None:
    """None of a pod that never ran, and of a job whose inputs another release wrote, or a tenant."""
    parts = pod.details.live if pod.details else None
    given = read_inputs(inputs)
    if parts is None or given is None:
        return None
    words, deadline_s = given
    sources = live_sources(parts, has_tokens=any(word.startswith(RENEWED) for word in words))
    if len(sources) != len(words):
        return None
    return JobInputs(pod, parts, words, deadline_s, sources)


@dataclass(frozen=True)
class PodChanges:
    """Finds and makes them."""

    objects: ObjectClient
    watched: WatchedObjects
    submitter: PodSubmitter
    token_namespaces: Collection[str] = field(default=())

    def due(self, job: JobInputs, connection: ClusterConnection, now: float) -> list[int]:
        """The numbers of sources that have changed, as far as that is known without a read."""
        may_renew = connection.cluster.spec.pods.api_tokens and job.pod.namespace in self.token_namespaces
        found = []
        for number, (source, word) in enumerate(zip(job.sources, job.words, strict=True)):
            if source.kind in OBJECTS:
                is_due = word != IMMUTABLE and self._has_changed(job.pod, source, word)
            elif source.kind == TOKEN:
                renewal_at = renewal_in(word)
                is_due = may_renew and renewal_at is not None and now >= renewal_at
            else:
                is_due = word != job.parts.fields
            if is_due:
                found.append(number)
        return found

    def _has_changed(self, pod: BoundPod, source: LiveSource, word: str) -> bool:
        place = ObjectPlace(source.kind, pod.namespace, source.name)
        is_kept = self.watched.version(place) == ABSENT and not source.is_optional
        return not is_kept and self.watched.has_changed(place, word)

    async def make(
        self, job: JobInputs, due: Sequence[int], connection: ClusterConnection, most: int = MOST_SOURCES
    ) -> Made:
        """Of so many sources at most. Raises ApiError."""
        words, spent = list(job.words), 0
        updates: dict[int, SourceUpdate] = {}
        failures: dict[int, SourceFailed] = {}
        for number in due:
            if spent > MOST_BYTES or len(updates) >= most:
                break
            source, budget = job.sources[number], ByteBudget()
            try:
                content = await self._content(job, source, connection)
                if is_same(content.word, words[number]):
                    continue
                update = await asyncio.to_thread(_source_update, source, content, budget)
            except SourceFailed as failure:
                failures[number] = failure
            except Unsupported as unsupported:
                failures[number] = SourceFailed(source, str(unsupported))
            else:
                if updates and spent + budget.spent > MOST_BYTES:
                    break
                words[number], updates[number] = content.word, update
            spent += budget.spent  # what fails costs as much
        sooner = min(job.parts.deadline_s or LONGEST_S, LONGEST_S) if job.has_sooner_deadline else None
        if not updates and sooner is None:
            return Made(None, [], failures)
        inputs = str(Inputs(words, sooner or job.deadline_s))
        update_of_pod = PodUpdate(inputs=inputs, sources=list(updates.values()), active_deadline_s=sooner)
        return Made(update_of_pod, list(updates), failures)

    async def _content(self, job: JobInputs, source: LiveSource, connection: ClusterConnection) -> Content:
        if source.kind in OBJECTS:
            word, body = await self.watched.read(ObjectPlace(source.kind, job.pod.namespace, source.name))
            if body is None and not source.is_optional:
                raise SourceFailed(source, f'{source.kind.lower()} "{source.name}" not found')
            found = {source.name: body} if body is not None else {}
            is_secret = source.kind == "secret"
            return Content(
                word, PodReferences(secrets=found) if is_secret else PodReferences(config_maps=found)
            )
        if source.kind == TOKEN:
            audience = source.source.get("audience") or ""
            seconds = token_seconds(source.source, is_default=source.volume == job.parts.token_volume)
            seconds = bounded_life_s(seconds, audience)
            references = PodReferences(tokens={audience: await self._token(job.pod, source, seconds)})
            return Content(token_word(seconds), references)
        manifest = await self._manifest(job.pod, source)
        references = references_for_fields(manifest, await self._partition(job.pod, source, connection))
        return Content(live_parts(manifest).fields, references, manifest)

    async def _token(self, pod: BoundPod, source: LiveSource, seconds: int) -> str:
        audience, ref = source.source.get("audience") or "", PodRef(pod.name, pod.uid)
        try:
            return await self.objects.token_for(
                pod.namespace, pod.account, audience, seconds=seconds, pod=ref
            )
        except ApiRefused as refusal:
            raise SourceFailed(source, f"failed to fetch token: {refusal}", may_pass=True) from refusal

    async def _manifest(self, pod: BoundPod, source: LiveSource) -> Object:
        manifest = await self.objects.get(ResourcePath(kinds.POD, pod.name, pod.namespace))
        if manifest is None or manifest["metadata"]["uid"] != pod.uid:
            raise SourceFailed(source, "the pod is gone")
        return manifest

    async def _partition(
        self, pod: BoundPod, source: LiveSource, connection: ClusterConnection
    ) -> TargetPartition:
        """Only default limits depend on it."""
        has_limits = any(item.get("resourceFieldRef") for item in source.source.get("items") or ())
        return await self.submitter.target(pod, connection) if has_limits else TargetPartition("")


def _source_update(source: LiveSource, content: Content, budget: ByteBudget) -> SourceUpdate:
    """Raises Unsupported."""
    field = f"spec.volumes[{source.volume}]"
    references = replace(content.references, budget=budget)
    with refusals_of(field):
        files = list(source_files(content.manifest, source, references, field))
        if sum(len(file.content) for file in files) > MOST_OF_A_SOURCE:
            raise Unsupported(f"{field}: its files have more than {MOST_OF_A_SOURCE // 1024**2} MiB")
        return SourceUpdate(volume=source.volume, source=source.number, files=files)
