"""What the watches have shown, kept small: SlurmJobs, their statuses and companions, by name and by uid.

A watch may show an older version after a write has returned a newer one; the newer one stays. Ten thousand
SlurmJobs as models would be 130 MiB: what is not asked of all of them at once is kept packed.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog
from pydantic import ValidationError

from redbox_kube.names import GROUP
from redbox_operator.api.slurmjob import SlurmJob, SlurmJobRef, SlurmJobSpec
from redbox_operator.api.slurmjob_status import SlurmJobStatus
from redbox_operator.companion.plan import CompanionPod
from redbox_operator.dependencies import Other

log = structlog.get_logger(__name__)
KEPT_METADATA = frozenset(
    {
        *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
        *("deletionTimestamp", "finalizers"),
    }
)
PodName = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class CachedJob:
    """A SlurmJob, and its status as read."""

    job: SlurmJob
    status: SlurmJobStatus

    @property
    def place(self) -> SlurmJobRef:
        return self.job.place

    @property
    def asks_for(self) -> tuple[object, ...]:
        """What its users change: the spec and the deletion are a new generation, annotations are not."""
        return self.job.metadata.get("generation"), self.job.being_deleted, self.job.annotations


@dataclass(frozen=True, slots=True)
class PackedJob:
    """The same, packed, beside what is asked of all of them at once."""

    place: SlurmJobRef
    uid: str
    version: str
    phase: str
    cluster: str | None
    submits: bool  # it has come to a companion
    finished: bool
    done: bool  # finished, and its companion has said its last word
    being_deleted: bool
    waits_for: tuple[str, ...]
    packed: bytes

    def unpacked(self) -> CachedJob:
        """To look at it."""
        kept = json.loads(zlib.decompress(self.packed))
        return CachedJob(
            SlurmJob(
                metadata=kept["metadata"],
                spec=SlurmJobSpec.model_validate(kept["spec"]),
                status={"cluster": self.cluster} if self.cluster and kept["status"].get("cluster") else {},
                resource=self.place.resource,
                unreadable=kept["unreadable"],
            ),
            SlurmJobStatus.model_validate(kept["status"]),
        )


def packed(job: SlurmJob) -> PackedJob:
    """A SlurmJob as it was shown, without managed fields and other people's annotations."""
    status = read_status(job)
    own = {key: value for key, value in job.annotations.items() if key.startswith(f"{GROUP}/")}
    metadata = {key: value for key, value in job.metadata.items() if key in KEPT_METADATA}
    kept = {
        "metadata": {**metadata, **({"annotations": own} if own else {})},
        "spec": job.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "status": status.written(),
        "unreadable": job.unreadable,
    }
    return PackedJob(
        place=job.place,
        uid=job.uid,
        version=str(job.metadata.get("resourceVersion", "")),
        phase=sys.intern(status.phase.value),
        cluster=sys.intern(status.cluster or job.spec.cluster or "") or None,
        submits=status.companion is not None,
        finished=status.finished,
        done=status.finished and (status.companion is None or bool(status.companion.done)),
        being_deleted=job.being_deleted,
        waits_for=tuple(wanted.name for wanted in job.spec.depends_on),
        packed=zlib.compress(json.dumps(kept).encode(), 1),
    )


@dataclass
class ObjectCache:
    """Everything of this kind that there is, as far as anybody has told."""

    jobs: dict[SlurmJobRef, PackedJob] = field(default_factory=dict)
    companions: dict[PodName, CompanionPod] = field(default_factory=dict)
    _places: dict[str, SlurmJobRef] = field(default_factory=dict)  # by uid
    _waiting_for: dict[tuple[str, str], set[SlurmJobRef]] = field(default_factory=dict)

    def is_news(self, job: SlurmJob) -> bool:
        """Whether it is another one than is known, or newer."""
        before = self.jobs.get(job.place)
        version = str(job.metadata.get("resourceVersion", ""))
        return not before or before.uid != job.uid or _higher(version, before.version)

    def job_seen(self, job: SlurmJob) -> bool:
        """Whether this is news."""
        place = job.place
        before = self.jobs.get(place)
        if not self.is_news(job):
            return False
        if before and before.uid != job.uid:
            self._drop(before)
        self.jobs[place] = packed(job)
        self._places[job.uid] = place
        for wanted in job.spec.depends_on:
            self._waiting_for.setdefault((job.namespace, wanted.name), set()).add(place)
        return True

    def job_gone(self, place: SlurmJobRef, uid: str | None = None) -> None:
        """It is gone; with `uid`, only if it is still this one."""
        known = self.jobs.get(place)
        if known and uid in {None, known.uid}:
            self._drop(known)

    def look(self, place: SlurmJobRef) -> CachedJob | None:
        """The SlurmJob there, unpacked."""
        known = self.jobs.get(place)
        return known.unpacked() if known else None

    def _drop(self, job: PackedJob) -> None:
        self.jobs.pop(job.place, None)
        self._places.pop(job.uid, None)
        for name in job.waits_for:
            waiting = self._waiting_for.get((job.place.namespace, name), set())
            waiting.discard(job.place)
            if not waiting:
                self._waiting_for.pop((job.place.namespace, name), None)

    def place_of(self, uid: str) -> SlurmJobRef | None:
        """Where the SlurmJob of this uid is."""
        return self._places.get(uid)

    def waiting_for(self, place: SlurmJobRef) -> frozenset[SlurmJobRef]:
        """SlurmJobs that depend on this one."""
        return frozenset(self._waiting_for.get((place.namespace, place.name), ()))

    def of_cluster(self, cluster: str) -> Iterator[PackedJob]:
        """SlurmJobs that went to this SlurmCluster, or name it."""
        return (one for one in list(self.jobs.values()) if one.cluster == cluster)

    def other(self, place: SlurmJobRef, name: str) -> Other | None:
        """A SlurmJob of the same namespace and kind."""
        known = self.look(place._replace(name=name))
        return Other(known.job, known.status) if known and not known.job.being_deleted else None

    def companion_seen(self, pod: CompanionPod) -> bool:
        """Whether this is news."""
        name = (pod.namespace, pod.name)
        before = self.companions.get(name)
        if before and before.uid == pod.uid and not _higher(pod.version, before.version):
            return False
        self.companions[name] = pod
        return True

    def companion_gone(self, namespace: str, name: str, uid: str | None = None) -> None:
        """It is gone; with `uid`, only if it is still this one."""
        known = self.companions.get((namespace, name))
        if known and uid in {None, known.uid}:
            del self.companions[namespace, name]


def read_status(job: SlurmJob) -> SlurmJobStatus:
    """The status as it was written; one that cannot be read is begun anew, and said."""
    try:
        return SlurmJobStatus.model_validate(job.status)
    except ValidationError as error:
        log.warning("unreadable status", slurmjob=f"{job.namespace}/{job.name}", error=str(error))
        return SlurmJobStatus()


def _higher(seen: str, before: str) -> bool:
    """Versions are numbers in every Kubernetes there is; where they were not, the later sight counts."""
    return int(seen) > int(before) if seen.isdigit() and before.isdigit() else seen != before
