"""What the watches have shown, kept small: SlurmJobs, their statuses and companions, by name and by uid.

A watch may show an older version after a write has returned a newer one; the newer one stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog
from pydantic import ValidationError

from redbox_operator.companions import Companion
from redbox_operator.dependencies import Other
from redbox_operator.job_status import SlurmJobStatus
from redbox_operator.kinds import Place, SlurmJob

log = structlog.get_logger(__name__)
KEPT_METADATA = frozenset(
    {
        *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
        *("deletionTimestamp", "finalizers"),
    }
)
PodName = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A SlurmJob, and its status as read."""

    job: SlurmJob
    status: SlurmJobStatus

    @property
    def place(self) -> Place:
        return self.job.place


@dataclass
class Known:
    """Everything of this kind that there is, as far as anybody has told."""

    jobs: dict[Place, KnownJob] = field(default_factory=dict)
    companions: dict[PodName, Companion] = field(default_factory=dict)
    _places: dict[str, Place] = field(default_factory=dict)  # by uid
    _waiting_for: dict[tuple[str, str], set[Place]] = field(default_factory=dict)

    def is_news(self, job: SlurmJob) -> bool:
        """Whether it is another one than is known, or newer."""
        before = self.jobs.get(job.place)
        return not before or before.job.uid != job.uid or _newer(job.metadata, before.job.metadata)

    def job_seen(self, job: SlurmJob) -> bool:
        """Whether this is news."""
        place = job.place
        before = self.jobs.get(place)
        if not self.is_news(job):
            return False
        if before and before.job.uid != job.uid:
            self._drop(before.job)
        self.jobs[place] = KnownJob(_small(job), read_status(job))
        self._places[job.uid] = place
        for wanted in job.spec.depends_on:
            self._waiting_for.setdefault((job.namespace, wanted.name), set()).add(place)
        return True

    def job_gone(self, place: Place, uid: str | None = None) -> None:
        """It is gone; with `uid`, only if it is still this one."""
        known = self.jobs.get(place)
        if known and uid in {None, known.job.uid}:
            self._drop(known.job)

    def _drop(self, job: SlurmJob) -> None:
        self.jobs.pop(job.place, None)
        self._places.pop(job.uid, None)
        for wanted in job.spec.depends_on:
            waiting = self._waiting_for.get((job.namespace, wanted.name), set())
            waiting.discard(job.place)
            if not waiting:
                self._waiting_for.pop((job.namespace, wanted.name), None)

    def place_of(self, uid: str) -> Place | None:
        """Where the SlurmJob of this uid is."""
        return self._places.get(uid)

    def waiting_for(self, place: Place) -> frozenset[Place]:
        """SlurmJobs that depend on this one."""
        return frozenset(self._waiting_for.get((place.namespace, place.name), ()))

    def of_cluster(self, cluster: str) -> Iterator[KnownJob]:
        """SlurmJobs that went to this SlurmCluster, or name it."""
        return (
            one for one in list(self.jobs.values()) if cluster in {one.status.cluster, one.job.spec.cluster}
        )

    def other(self, place: Place, name: str) -> Other | None:
        """A SlurmJob of the same namespace and kind."""
        known = self.jobs.get(place._replace(name=name))
        return Other(known.job, known.status) if known and not known.job.being_deleted else None

    def companion_seen(self, pod: Companion) -> bool:
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


def _small(job: SlurmJob) -> SlurmJob:
    """Without managed fields, other people's annotations and the raw status: ten thousand are kept."""
    metadata = {key: value for key, value in job.metadata.items() if key in KEPT_METADATA}
    own = {key: value for key, value in job.annotations.items() if key.startswith("redbox.dev/")}
    metadata |= {"annotations": own} if own else {}
    cluster = job.status.get("cluster")
    kept: dict[str, Any] = {"metadata": metadata, "status": {"cluster": cluster} if cluster else {}}
    return job.model_copy(update=kept)


def _newer(seen: dict[str, Any], before: dict[str, Any]) -> bool:
    return _higher(str(seen.get("resourceVersion", "")), str(before.get("resourceVersion", "")))


def _higher(seen: str, before: str) -> bool:
    """Versions are numbers in every Kubernetes there is; where they were not, the later sight counts."""
    return int(seen) > int(before) if seen.isdigit() and before.isdigit() else seen != before
