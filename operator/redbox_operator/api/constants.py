"""Public names: finalizers, annotations, labels, pod names, and paths in the companion's pod."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from redbox_clusters.names import GROUP
from redbox_shared import pod_contract

FIELD_MANAGER = "redbox-operator"
FINALIZER = f"{GROUP}/slurm-job"
CLUSTER_FINALIZER = f"{GROUP}/slurm-cluster"
ANNOTATION_ABANDON = f"{GROUP}/abandon"
"""On a SlurmJob, "true": delete it without waiting for its job in Slurm, which may run on."""
ANNOTATION_REACHES = f"{GROUP}/reaches"
"""On a companion's pod: a digest of red-box's address and CA."""
LABEL_ROLE = f"{GROUP}/role"


class PodRole(StrEnum):
    """The work of a pod of a job; the suffix of its name."""

    JOB = "job"  # all of it; with Virtual delivery the pod that users see and read logs from
    SUBMIT = "submit"  # submits with values that only a kubelet can read, for Virtual delivery
    HELPER = "helper"  # carries connections to the job, then copies its results, for Virtual delivery


class CompanionMode(StrEnum):
    """The work of the companion in a pod."""

    WHOLE = pod_contract.WHOLE
    SUBMIT_ONLY = pod_contract.SUBMIT_ONLY
    HELPER = pod_contract.HELPER
    ATTACH_ONLY = pod_contract.ATTACH_ONLY  # on a virtual node: another pod submits


def cluster_finalizer(namespace: str, *, limited: bool) -> str:
    """The operator's finalizer on SlurmClusters; each operator that is limited to namespaces has its own."""
    if not limited:
        return CLUSTER_FINALIZER
    return f"{CLUSTER_FINALIZER}-{hashlib.sha256(namespace.encode()).hexdigest()[:8]}"


def pod_name(slurmjob: str, attempt: int = 1, role: PodRole = PodRole.JOB) -> str:
    """The pod that users read logs from: `kubectl logs NAME-job`; later attempts append their number."""
    return f"{slurmjob}-{role.value}" + (f"-{attempt}" if attempt > 1 else "")
