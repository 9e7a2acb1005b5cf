"""The object cache: SlurmJobs with their statuses, and companion pods, by name and by uid.

A watch may show an older version after a write has returned a newer one; the newer one stays. Ten thousand
SlurmJobs as models would be 130 MiB: fields that are not read of all SlurmJobs at once are kept packed. Of
those that have changed last, most of which change again soon, the models are kept as well.

Tenants make SlurmJobs of a megabyte: of a large one only what others need of it is kept, and the whole is
read when it is reconciled.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from redbox_operator.api.constants import ANNOTATION_ABANDON, FINALIZER
from redbox_operator.api.slurmjob import SlurmJob, SlurmJobRef, awaits_pods
from redbox_operator.companion_pods.placement import chosen_cluster
from redbox_operator.companion_pods.plan import CompanionPod
from redbox_shared import requested_actions

KEPT_METADATA = frozenset(
    {
        *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
        *("deletionTimestamp", "finalizers"),
    }
)
ANNOTATIONS = frozenset({
    ANNOTATION_ABANDON, requested_actions.CANCEL, requested_actions.CANCEL_TASKS, requested_actions.RELEASE,
    requested_actions.REQUEUE,
})  # fmt: skip
LONGEST_ANNOTATION = 256
KEPT_OF_LARGE = {
    *("cluster", "endpoint", "node_selector", "service_account_name"),
    *("backoff_limit", "suspend"),  # for those that depend on it
}
LARGEST_WHOLE = 16 * 1024
"""As JSON: ten thousand of more could be made to fill the operator's memory."""
PodName = tuple[str, str]  # namespace, name
OWN_WRITES = 4096
"""Of so many the versions are kept: watches show a write some milliseconds after its answer."""
MODELS = 500
LARGEST_MODEL = 8 * 1024
"""As JSON: 500 models of more could be made to fill the operator's memory."""


@dataclass(frozen=True, slots=True)
class PackedJob:
    """A SlurmJob in compressed form, beside the fields that are read of all SlurmJobs at once."""

    ref: SlurmJobRef
    uid: str
    version: str
    phase: str
    cluster: str | None  # the key of a SlurmCluster or a SlurmEndpoint
    has_companion: bool
    finished: bool
    done: bool  # finished, and its pods have left their final messages
    being_deleted: bool
    depends_on: tuple[str, ...]
    any_is_enough: bool  # of several
    packed: bytes
    size: int  # before it was packed

    def unpacked(self) -> SlurmJob:
        return SlurmJob(resource=self.ref.resource, **json.loads(zlib.decompress(self.packed)))


def trimmed(job: SlurmJob) -> SlurmJob:
    """A SlurmJob without managed fields and without annotations that nothing reads."""
    own = {
        key: value
        for key, value in job.annotations.items()
        if key in ANNOTATIONS and len(value) <= LONGEST_ANNOTATION
    }
    metadata = {key: value for key, value in job.metadata.items() if key in KEPT_METADATA}
    return job.model_copy(update={"metadata": {**metadata, **({"annotations": own} if own else {})}})


def packed(job: SlurmJob) -> PackedJob:
    """A SlurmJob that is trimmed."""
    status = job.status
    kept: dict[str, Any] = {
        "metadata": job.metadata,
        "spec": _spec_of(job),
        "status": status.written(),
        "unreadable": job.unreadable,
    }
    text = json.dumps(kept).encode()
    size = len(text)
    if size > LARGEST_WHOLE:
        kept["metadata"] = _metadata_of_large(job)
        kept["spec"] = _spec_of(job, include=KEPT_OF_LARGE)
        kept["is_whole"] = False
        text = json.dumps(kept).encode()
    return PackedJob(
        ref=job.ref,
        uid=job.uid,
        version=str(job.metadata.get("resourceVersion", "")),
        phase=sys.intern(status.phase.value),
        cluster=sys.intern(chosen_cluster(job) or "") or None,
        has_companion=status.companion is not None,
        finished=status.finished,
        done=status.finished and not awaits_pods(job.spec, status),
        being_deleted=job.being_deleted,
        depends_on=tuple(dependency.name for dependency in job.spec.depends_on),
        any_is_enough=job.spec.depends_on_any and len(job.spec.depends_on) > 1,
        packed=zlib.compress(text, 1),
        size=size,
    )


def _metadata_of_large(job: SlurmJob) -> dict[str, Any]:
    """Anybody who makes one may give it thousands of finalizers: of these only whether ours is there."""
    if "finalizers" not in job.metadata:
        return job.metadata
    return {**job.metadata, "finalizers": [name for name in job.finalizers if name == FINALIZER]}


def _spec_of(job: SlurmJob, include: set[str] | None = None) -> dict[str, Any]:
    return job.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=include)


@dataclass
class ObjectCache:
    """All SlurmJobs and companion pods in their newest version that a watch, a list or a write has shown."""

    jobs: dict[SlurmJobRef, PackedJob] = field(default_factory=dict)
    companions: dict[PodName, CompanionPod] = field(default_factory=dict)
    _models: OrderedDict[SlurmJobRef, SlurmJob] = field(default_factory=OrderedDict)  # the newest last
    _refs: dict[str, SlurmJobRef] = field(default_factory=dict)  # by uid
    _dependents: dict[tuple[str, str], set[SlurmJobRef]] = field(default_factory=dict)
    _own_writes: OrderedDict[str, None] = field(default_factory=OrderedDict)  # versions, the newest last

    def is_newer(self, ref: SlurmJobRef, version: str) -> bool:
        """Whether this is newer than the cached version, be it of the same object or of another one."""
        before = self.jobs.get(ref)
        return not before or is_higher(version, before.version)

    def update_job(self, job: SlurmJob) -> bool:
        """Cache this version unless a newer one is cached; returns whether it was stored."""
        if not self.is_newer(job.ref, str(job.metadata.get("resourceVersion", ""))):
            return False
        before = self.jobs.get(job.ref)
        if before and before.uid != job.uid:
            self._drop(before)
        kept = trimmed(job)
        self.jobs[job.ref] = packed(kept)
        self._keep(kept)
        self._refs[job.uid] = job.ref
        for dependency in job.spec.depends_on:
            self._dependents.setdefault((job.namespace, dependency.name), set()).add(job.ref)
        return True

    def job_written(self, job: SlurmJob) -> None:
        """Cache what a write of ours has returned."""
        self._note_own_write(str(job.metadata.get("resourceVersion", "")))
        self.update_job(job)

    def is_own_write(self, version: str) -> bool:
        """Whether a write of ours has made this version of an object, which so is cached, or a newer one."""
        return version in self._own_writes

    def _note_own_write(self, version: str) -> None:
        self._own_writes[version] = None
        if len(self._own_writes) > OWN_WRITES:
            self._own_writes.popitem(last=False)

    def remove_job(self, ref: SlurmJobRef, uid: str) -> bool:
        """Remove it if the cached object has this uid; returns whether none of this name is left."""
        job = self.jobs.get(ref)
        if job and job.uid == uid:
            self._drop(job)
        return ref not in self.jobs

    def _drop(self, job: PackedJob) -> None:
        self.jobs.pop(job.ref, None)
        self._models.pop(job.ref, None)
        self._refs.pop(job.uid, None)
        for name in job.depends_on:
            dependents = self._dependents.get((job.ref.namespace, name), set())
            dependents.discard(job.ref)
            if not dependents:
                self._dependents.pop((job.ref.namespace, name), None)

    def get(self, ref: SlurmJobRef) -> SlurmJob | None:
        """It is shared by all that ask, and changed by none; a large one is not whole, nor its finalizers."""
        job = self.jobs.get(ref)
        return self._models.get(ref) or job.unpacked() if job else None

    def _keep(self, model: SlurmJob) -> None:
        """As a model, unless it is large; the one that changed longest ago makes room."""
        self._models.pop(model.ref, None)
        if self.jobs[model.ref].size <= LARGEST_MODEL:
            self._models[model.ref] = model
        if len(self._models) > MODELS:
            self._models.popitem(last=False)

    def ref_of(self, uid: str) -> SlurmJobRef | None:
        return self._refs.get(uid)

    def dependents_of(self, ref: SlurmJobRef) -> frozenset[SlurmJobRef]:
        """SlurmJobs whose `dependsOn` names this one."""
        return frozenset(self._dependents.get((ref.namespace, ref.name), ()))

    def dependency(self, ref: SlurmJobRef, name: str) -> SlurmJob | None:
        """The SlurmJob of this name in the same namespace and of the same kind."""
        job = self.get(ref._replace(name=name))
        return job if job and not job.being_deleted else None

    def depends_on(self, ref: SlurmJobRef, name: str) -> tuple[str, ...]:
        """All that `dependency` of this name waits for, without unpacking it; none if any is enough."""
        job = self.jobs.get(ref._replace(name=name))
        return job.depends_on if job and not job.being_deleted and not job.any_is_enough else ()

    def jobs_of(self, cluster: str) -> Iterator[PackedJob]:
        """SlurmJobs that were submitted to the SlurmCluster or SlurmEndpoint of this key, or name it."""
        return (job for job in list(self.jobs.values()) if job.cluster == cluster)

    def update_companion(self, pod: CompanionPod) -> bool:
        """Cache this version unless a newer one is cached; returns whether it differs in anything else."""
        name = (pod.namespace, pod.name)
        before = self.companions.get(name)
        if before and not is_higher(pod.version, before.version):
            return False
        self.companions[name] = pod
        return before is None or replace(before, version=pod.version) != pod

    def companion_written(self, pod: CompanionPod) -> None:
        """Cache what a write of ours has returned."""
        self._note_own_write(pod.version)
        self.update_companion(pod)

    def remove_companion(self, namespace: str, name: str, uid: str | None = None) -> None:
        """Remove it; with `uid`, only if the cached pod has it."""
        pod = self.companions.get((namespace, name))
        if pod and uid in {None, pod.uid}:
            del self.companions[namespace, name]


def is_higher(version: str, before: str) -> bool:
    """Whether it is the newer one of two versions of a kind; they need not be of the same object.

    They are numbers in every Kubernetes so far; otherwise the version that arrives later is newer.
    """
    return int(version) > int(before) if version.isdigit() and before.isdigit() else version != before
