"""Pods with a job of their own on virtual nodes, as the API server shows them.

For decisions about a whole SlurmCluster, or a whole installation: what leaves them behind has to name them.
Companions are not among them: their jobs are those of SlurmJobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from redbox_clusters.names import (
    LABEL_CLUSTER,
    LABEL_VIRTUAL,
    OLD_SLURM_JOBS,
    OLDEST_SLURM_JOBS,
    SLURM_JOBS,
    WLM_JOBS,
)
from redbox_clusters.node_labels import dns_label, partition_label
from redbox_kube.api import kinds
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath

SUBMITTED = "redbox.dev/Submitted"
"""The condition of a pod whose job is at red-box; only resourced writes it. Its message names the job."""
OF_JOBS = {
    (kind.group, kind.name): kind for kind in (SLURM_JOBS, OLD_SLURM_JOBS, OLDEST_SLURM_JOBS, WLM_JOBS)
}
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class SubmittedPod:
    """A pod that runs as a Slurm job, which has not ended."""

    namespace: str
    name: str
    uid: str
    job: str
    """As the condition has it: Slurm job 7 of alice."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> ResourcePath:
        return ResourcePath(kinds.POD, self.name, self.namespace)

    def __str__(self) -> str:
        return f"{self.full_name}: {self.job}"


async def submitted_pods(objects: ObjectClient, nodes: Iterable[str]) -> list[SubmittedPod]:
    """Those on these virtual nodes."""
    found = []
    for node in nodes:
        selection = {"fieldSelector": f"spec.nodeName={node},{UNFINISHED}"}
        async for pods, _ in objects.pages(ResourcePath(kinds.POD), selection):
            found += [pod for pod in map(submitted_pod, pods) if pod is not None]
            del pods  # before the next page is read
    return found


async def virtual_nodes_of(objects: ObjectClient, cluster: str) -> list[str]:
    """The virtual nodes of a SlurmCluster. The name counts beside the labels, which a kubelet can set too."""
    selection = {"labelSelector": f"{LABEL_VIRTUAL},{LABEL_CLUSTER}={partition_label(cluster)}"}
    nodes = objects.list_metadata(ResourcePath(kinds.NODE), selection)
    return [node.name async for node in nodes if node.name.startswith(f"{dns_label(cluster)}.")]


def submitted_pod(pod: Object) -> SubmittedPod | None:
    """None where it has no job of its own, or has ended."""
    metadata, status = pod["metadata"], pod.get("status", {})
    conditions = status.get("conditions") or ()
    submitted: Object = next((condition for condition in conditions if condition["type"] == SUBMITTED), {})
    has_ended = status.get("phase") in {"Succeeded", "Failed"}
    if has_ended or submitted.get("status") != "True" or _is_companion(metadata):
        return None
    words = submitted.get("message") or "no job id yet"
    return SubmittedPod(metadata["namespace"], metadata["name"], metadata["uid"], words)


def kind_of_job(api_version: str, kind: str) -> Kind | None:
    """The kind of jobs that a controller is of: its pods are companions. None: it is of none."""
    return OF_JOBS.get((api_version.partition("/")[0], kind))


def _is_companion(metadata: Object) -> bool:
    owners = metadata.get("ownerReferences") or ()
    return any(
        owner.get("controller") and kind_of_job(owner["apiVersion"], owner["kind"]) for owner in owners
    )
