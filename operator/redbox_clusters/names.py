"""Names on Kubernetes objects that both controllers use: groups, labels, annotations, taints."""

from __future__ import annotations

from redbox_kube.api.kinds import Kind

GROUP = "redbox.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
SLURM_JOBS = Kind(GROUP, VERSION, "slurmjobs", "SlurmJob")

WLM_GROUP = "wlm.sylabs.io"
OLD_SLURM_JOBS = Kind(WLM_GROUP, VERSION, "slurmjobs", "SlurmJob")
OLDEST_SLURM_JOBS = Kind("slurm.sylabs.io", VERSION, "slurmjobs", "SlurmJob")
WLM_JOBS = Kind(WLM_GROUP, VERSION, "wlmjobs", "WlmJob")
"""The kinds of Sylabs' operators."""

LABEL_JOB_UID = f"{GROUP}/slurmjob-uid"
LABEL_SLURMJOB = f"{GROUP}/slurmjob"
"""On the pod that serves a job's ports: the name of its SlurmJob, for Services. Nothing trusts it."""
LABEL_ATTEMPT = f"{GROUP}/attempt"
LABEL_CLUSTER = f"{GROUP}/cluster"
LABEL_ENDPOINT = f"{GROUP}/endpoint"
"""On pods of jobs: the SlurmEndpoint, in place of the SlurmCluster."""
LABEL_PARTITION = f"{GROUP}/partition"
"""On virtual nodes: the SlurmCluster, and the partition as `partition_label` writes it."""
LABEL_DEFAULT_PARTITION = f"{GROUP}/default-partition"
LABEL_VIRTUAL = f"{GROUP}/virtual"
ANNOTATION_PARTITION = f"{GROUP}/partition"
"""The partition's true name, which may not be a valid label value."""

PROVIDER = "redbox://"
"""The scheme of a virtual node's providerID, which is immutable; anybody with the right can change labels."""

FINALIZER_VOLUME = f"{GROUP}/directory"
"""On each PersistentVolume that resourced made, so that none is gone before its folder is."""

TAINT_SLURM = f"{GROUP}/slurm"
"""Keeps other pods from virtual nodes."""
TAINT_UNREACHABLE = f"{GROUP}/unreachable"
