"""Every name that others may meet: groups, kinds, labels, annotations, paths in the companion's pod."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from redbox_kube.names import GROUP
from redbox_shared import pod_contract

FIELD_MANAGER = "redbox-operator"
FINALIZER = f"{GROUP}/slurm-job"
CLUSTER_FINALIZER = f"{GROUP}/slurm-cluster"
ANNOTATION_ABANDON = f"{GROUP}/abandon"
"""On a SlurmJob, "true": delete it without waiting for its job in Slurm, which may run on."""
ANNOTATION_REACHES = f"{GROUP}/reaches"
"""On a pod with a companion: a digest of where it looks for red-box, and whom it trusts to be that."""
LABEL_ROLE = f"{GROUP}/role"


class Role(StrEnum):
    """What a pod of a job does; the suffix of its name, so that users find it."""

    JOB = "job"  # all of it; with Virtual delivery what users see and read logs from
    SUBMIT = "submit"  # submits what needs values that only a kubelet can read, for Virtual delivery
    COLLECT = "collect"  # copies results into their volume, for Virtual delivery


class Mode(StrEnum):
    """What the companion in a pod is told to do."""

    WHOLE = pod_contract.WHOLE
    SUBMIT_ONLY = pod_contract.SUBMIT_ONLY
    RESULTS_ONLY = pod_contract.RESULTS_ONLY
    ATTACH_ONLY = pod_contract.ATTACH_ONLY  # on a virtual node: another pod submits


def cluster_finalizer(namespace: str, *, limited: bool) -> str:
    """The operator's on SlurmClusters; of several that are limited to some namespaces each has its own."""
    if not limited:
        return CLUSTER_FINALIZER
    return f"{CLUSTER_FINALIZER}-{hashlib.sha256(namespace.encode()).hexdigest()[:8]}"


def pod_name(slurmjob: str, attempt: int = 1, role: Role = Role.JOB) -> str:
    """What users read logs from: `kubectl logs NAME-job`; later attempts have their number behind."""
    return f"{slurmjob}-{role.value}" + (f"-{attempt}" if attempt > 1 else "")
