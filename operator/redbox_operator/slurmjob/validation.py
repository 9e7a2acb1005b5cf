"""What is wrong with a SlurmJob as it is written. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Sequence

from pydantic import ValidationError

from redbox_kube.names import LABEL_CLUSTER, LABEL_PARTITION
from redbox_kube.node_labels import partition_label
from redbox_operator.api.problems import StatusProblem, first_flaw
from redbox_operator.api.slurmjob import LONGEST_NAME, SlurmJob
from redbox_operator.companion.job_request import LARGEST_REQUEST, frozen, job_request
from redbox_operator.companion.placement import cluster_of, partition_of

VOLUMES = "persistentVolumeClaim, nfs or ephemeral"


def problem_of(job: SlurmJob, host_paths: Sequence[str] = ()) -> StatusProblem | None:
    """The first thing that keeps it from ever being submitted; results may go below these `host_paths`."""
    return (
        _of_reading(job)
        or _of_name(job)
        or _of_selector(job)
        or _of_sources(job)
        or _of_volume(job, host_paths)
        or _of_request(job)
    )


def problem_of_cluster(job: SlurmJob, clusters: Collection[str]) -> StatusProblem | None:
    """Why no SlurmCluster can run it yet. One that comes may cure it."""
    name = cluster_of(job, clusters)
    known = ", ".join(sorted(clusters)) or "none"
    if name is None:
        return StatusProblem(
            "ClusterNotNamed", f"spec.cluster names none of the SlurmClusters ({known}): make it anew"
        )
    if name not in clusters:
        words = (
            f"there is no SlurmCluster {name} (only: {known}): create it, or name another in a new SlurmJob"
        )
        return StatusProblem("NoSuchCluster", words)
    return None


def _of_reading(job: SlurmJob) -> StatusProblem | None:
    if job.unreadable is None:
        return None
    words = f"its spec cannot be read ({job.unreadable}): mend that, delete this, and apply it again"
    return StatusProblem("Unreadable", words, final=True)


def _of_name(job: SlurmJob) -> StatusProblem | None:
    if len(job.name) <= LONGEST_NAME:
        return None
    words = f"its name has {len(job.name)} characters: give it one of at most {LONGEST_NAME}"
    return StatusProblem("NameTooLong", words, final=True)


def _of_selector(job: SlurmJob) -> StatusProblem | None:
    for label, field, said in (
        (LABEL_CLUSTER, "cluster", job.spec.cluster),
        (LABEL_PARTITION, "partition", job.spec.partition),
    ):
        selected = job.spec.node_selector.get(label, said)
        if said and selected not in {said, partition_label(said)}:
            words = f"spec.{field} is {said}, but nodeSelector's {label} is {selected}: leave one of them out"
            return StatusProblem("Contradiction", words, final=True)
    return None


def _of_sources(job: SlurmJob) -> StatusProblem | None:
    """Red-box would refuse it too, but not before the job has ended."""
    for source in job.spec.results.sources if job.spec.results else ():
        if ".." in source.split("/"):
            words = f"results are to come from {source}: leave the .. out, or say an absolute path"
            return StatusProblem("Invalid", words, final=True)
    return None


def _of_volume(job: SlurmJob, host_paths: Sequence[str]) -> StatusProblem | None:
    volume = job.spec.results.volume if job.spec.results else None
    if volume is None or volume.persistent_volume_claim or volume.nfs or volume.ephemeral:
        return None
    if volume.host_path and any(_is_below(volume.host_path, folder) for folder in host_paths):
        return None
    given = ", ".join(sorted(volume.model_extra or {})) or "nothing"
    below = f", or a hostPath below {', '.join(host_paths)}" if host_paths else ""
    return StatusProblem(
        "VolumeNotAllowed", f"results go into a volume of {given}: use {VOLUMES}{below}", final=True
    )


def _is_below(path: str, folder: str) -> bool:
    """Taken literally: what is not written plainly may lead elsewhere."""
    plain = posixpath.normpath(path) == path.rstrip("/")
    return plain and f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _of_request(job: SlurmJob) -> StatusProblem | None:
    try:
        size = len(frozen(job_request(job, partition_of(job))).encode())
    except ValidationError as error:
        return StatusProblem("Invalid", first_flaw(error), final=True)
    if size <= LARGEST_REQUEST:
        return None
    words = f"its request has {size} bytes: keep it under {LARGEST_REQUEST}, or put the script into batchFrom"
    return StatusProblem("TooLarge", words, final=True)
