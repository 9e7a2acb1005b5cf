"""Validation of a SlurmJob beyond its schema: why it can never be submitted, or not yet. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Sequence

from pydantic import ValidationError

from redbox_api.models import Partition
from redbox_clusters.names import LABEL_CLUSTER, LABEL_PARTITION, SLURM_JOBS
from redbox_clusters.node_labels import partition_label
from redbox_clusters.slurm_cluster import Delivery, SlurmCluster
from redbox_clusters.slurm_endpoint import is_endpoint, is_visible, title_of
from redbox_kube.status.problems import StatusProblem, first_flaw
from redbox_operator.api.partition_status import partition_names
from redbox_operator.api.slurmjob import LONGEST_NAME, SlurmJob
from redbox_operator.companion_pods.job_request import LARGEST_REQUEST, job_request, stored_request
from redbox_operator.companion_pods.placement import cluster_of, partition_of
from redbox_operator.slurmcluster.registry import NO_SUCH_ENDPOINT
from redbox_shared.pod_contract import DEFAULT_READINESS_PORT

NO_SUCH_PARTITION = "NoSuchPartition"
MOST_NAMED = 20
VOLUMES = "persistentVolumeClaim, nfs or ephemeral"


def problem_of(job: SlurmJob, host_paths: Sequence[str] = ()) -> StatusProblem | None:
    """The first problem for which it can never be submitted. Old kinds may have results in `host_paths`."""
    return (
        _of_reading(job)
        or _of_name(job)
        or _of_selector(job)
        or _of_sources(job)
        or _of_volume(job, host_paths)
        or _of_ports(job)
        or _of_request(job)
    )


def problem_of_cluster(job: SlurmJob, clusters: Collection[str]) -> StatusProblem | None:
    """Why no SlurmCluster or SlurmEndpoint can run it yet; one that is created later can resolve this."""
    name = cluster_of(job, clusters)
    names = ", ".join(sorted(_shown(key) for key in clusters if is_visible(key, job.namespace))) or "none"
    if name is None:
        return StatusProblem(
            "ClusterNotNamed",
            f"spec.cluster names none of the SlurmClusters ({names}): name one in a new SlurmJob",
        )
    if name not in clusters:
        message = (
            f"there is no {title_of(name)} (only: {names}): create it, or name another in a new SlurmJob"
        )
        return StatusProblem(NO_SUCH_ENDPOINT if is_endpoint(name) else "NoSuchCluster", message)
    return None


def problem_of_partition(
    job: SlurmJob, cluster: SlurmCluster, partitions: Sequence[Partition] | None
) -> StatusProblem | None:
    """Why no virtual node is its partition's. With Container delivery Slurm itself refuses the job."""
    name = partition_of(job)
    if name is None or partitions is None or cluster.spec.delivery is not Delivery.VIRTUAL:
        return None
    if any(name in {partition.name, partition_label(partition.name)} for partition in partitions):
        return None
    names = partition_names(partitions)
    more = [f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    shown = ", ".join([*names[:MOST_NAMED], *more]) or "none"
    message = (
        f"{cluster.title} has no partition {name} (only: {shown}): name one of these in a new SlurmJob. "
        f"Once there is a partition {name}, this SlurmJob continues"
    )
    return StatusProblem(NO_SUCH_PARTITION, message)


def _shown(key: str) -> str:
    """A SlurmEndpoint with its kind: `cluster` cannot name it."""
    return title_of(key) if is_endpoint(key) else key


def _of_reading(job: SlurmJob) -> StatusProblem | None:
    if job.unreadable is None:
        return None
    message = f"its spec cannot be read ({job.unreadable}): delete this SlurmJob, fix it, and apply it again"
    return StatusProblem("Unreadable", message, final=True)


def _of_name(job: SlurmJob) -> StatusProblem | None:
    if len(job.name) <= LONGEST_NAME:
        return None
    message = f"its name has {len(job.name)} characters: give it one of at most {LONGEST_NAME}"
    return StatusProblem("NameTooLong", message, final=True)


def _of_selector(job: SlurmJob) -> StatusProblem | None:
    if job.spec.endpoint and LABEL_CLUSTER in job.spec.node_selector:
        message = f"spec.endpoint is set, but nodeSelector has {LABEL_CLUSTER}: remove one of them"
        return StatusProblem("Contradiction", message, final=True)
    for label, field, value in (
        (LABEL_CLUSTER, "cluster", job.spec.cluster),
        (LABEL_PARTITION, "partition", job.spec.partition),
    ):
        selected = job.spec.node_selector.get(label, value)
        if value and selected not in {value, partition_label(value)}:
            message = f"spec.{field} is {value}, but nodeSelector's {label} is {selected}: remove one of them"
            return StatusProblem("Contradiction", message, final=True)
    return None


def _of_sources(job: SlurmJob) -> StatusProblem | None:
    """Red-box refuses it as well, but only after the job has ended."""
    for source in job.spec.results.sources if job.spec.results else ():
        if ".." in source.split("/"):
            message = f"results.from has {source}: remove the .. or give an absolute path"
            return StatusProblem("Invalid", message, final=True)
    return None


def _of_volume(job: SlurmJob, host_paths: Sequence[str]) -> StatusProblem | None:
    volume = job.spec.results.volume if job.spec.results else None
    if volume is None:
        return None
    folders = () if job.resource == SLURM_JOBS else host_paths  # only old kinds may have one
    if volume.host_path:
        if any(_is_below(volume.host_path.path, folder) for folder in folders):
            return None
    elif volume.unknown_source is None:
        return None
    given = volume.unknown_source or "hostPath"
    below = f", or a hostPath below {', '.join(folders)}" if folders else ""
    return StatusProblem(
        "VolumeNotAllowed", f"results go into a volume of {given}: use {VOLUMES}{below}", final=True
    )


def _of_ports(job: SlurmJob) -> StatusProblem | None:
    ports = [port.port for port in job.spec.ports]
    if ports and job.spec.array:
        message = "spec.ports is set for a job array, whose tasks share no port: submit one SlurmJob a task"
        return StatusProblem("Invalid", message, final=True)
    for port in ports:
        if ports.count(port) > 1:
            return StatusProblem("Invalid", f"spec.ports has port {port} more than once", final=True)
        if port == DEFAULT_READINESS_PORT:
            message = f"spec.ports has port {port}, where the pod answers its readiness probe: take another"
            return StatusProblem("Invalid", message, final=True)
    return None


def _is_below(path: str, folder: str) -> bool:
    """Only for a normalized path: any other may lead elsewhere."""
    plain = posixpath.normpath(path) == path.rstrip("/")
    return plain and f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _of_request(job: SlurmJob) -> StatusProblem | None:
    try:
        size = len(stored_request(job_request(job, partition_of(job))).encode())
    except ValidationError as error:
        return StatusProblem("Invalid", first_flaw(error), final=True)
    if size <= LARGEST_REQUEST:
        return None
    message = f"its request has {size} bytes, more than {LARGEST_REQUEST}: make it smaller, or use batchFrom"
    return StatusProblem("TooLarge", message, final=True)
