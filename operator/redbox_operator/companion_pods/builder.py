"""Builds the objects of an attempt: the ConfigMap with its request, and its pods. Pure.

With Container delivery the companion does everything. With Virtual delivery it is bound to a virtual node,
where its container does not run; values of Secrets, and volumes, need a kubelet and so have separate pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redbox_api.connections import pem_of
from redbox_api.models import Dependency
from redbox_clusters.names import (
    LABEL_ATTEMPT,
    LABEL_CLUSTER,
    LABEL_ENDPOINT,
    LABEL_JOB_UID,
    LABEL_SLURMJOB,
)
from redbox_clusters.slurm_cluster import Delivery, SlurmCluster
from redbox_operator.api.constants import ANNOTATION_REACHES, LABEL_ROLE, CompanionMode, PodRole, pod_name
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.companion_pods.job_request import digest, job_request, stored_request
from redbox_operator.companion_pods.placement import held_back, partition_of, placed, placed_anywhere
from redbox_operator.companion_pods.pod_spec import PodParts, parts_of
from redbox_operator.companion_pods.users import CompanionUsers
from redbox_shared.pod_contract import CA_FILE, COMPANION_CONTAINER, DEFAULT_READINESS_PORT, REQUEST_FILE

Object = dict[str, Any]
FIRST_ATTEMPT = 1
READINESS = {
    "httpGet": {"path": "/", "port": DEFAULT_READINESS_PORT},
    "periodSeconds": 3,
    "timeoutSeconds": 2,
}
NOT_OURS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true", "sidecar.istio.io/inject": "false"}
MODES = {
    PodRole.JOB: CompanionMode.WHOLE,
    PodRole.SUBMIT: CompanionMode.SUBMIT_ONLY,
    PodRole.HELPER: CompanionMode.HELPER,
}


@dataclass(frozen=True)
class CompanionProgram:
    """What companions run, and as whom."""

    image: str
    users: CompanionUsers = field(default_factory=CompanionUsers)


def config_map(
    job: SlurmJob,
    cluster: SlurmCluster,
    attempt: int = FIRST_ATTEMPT,
    dependencies: Sequence[Dependency] = (),
) -> Object:
    """The attempt's stored request, and the CA of the red-box that it goes to."""
    request = stored_request(job_request(job, partition_of(job), dependencies))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job, cluster, attempt, PodRole.JOB),
        "immutable": True,
        "data": {REQUEST_FILE: request, CA_FILE: pem_of(cluster.spec.ca_bundle)},
    }


def reaches(cluster: SlurmCluster) -> str:
    """The value of `redbox.dev/reaches` for the red-box's current address and CA.

    A SlurmEndpoint that was made again has another audience; that of a SlurmCluster never changes.
    """
    audience = f"\n{cluster.spec.audience}" if cluster.namespace else ""
    bundle = cluster.spec.ca_bundle.decode(errors="replace")
    return digest(f"{cluster.spec.endpoint}\n{bundle}{audience}")


def request_digest(made: Object) -> str:
    """The digest of a ConfigMap's request, as in `status.companion.request`."""
    return digest(made["data"][REQUEST_FILE])


def needs_submitter(job: SlurmJob, cluster: SlurmCluster) -> bool:
    """Whether its request has values that only a kubelet can read, and its companion runs without one."""
    spec = job.spec
    by_kubelet = spec.batch_from or (spec.container and spec.container.registry_secret)
    return cluster.spec.delivery is Delivery.VIRTUAL and bool(
        by_kubelet or any(variable.value_from for variable in spec.env)
    )


def needs_helper(job: SlurmJob, cluster: SlurmCluster, *, job_has_ended: bool) -> bool:
    """Whether its ports, and at its end its results, need a separate pod, whose container runs."""
    work = job.spec.results if job_has_ended else job.spec.ports
    return cluster.spec.delivery is Delivery.VIRTUAL and bool(work)


def companion_pod(
    job: SlurmJob,
    cluster: SlurmCluster,
    attempt: int,
    program: CompanionProgram,
    role: PodRole = PodRole.JOB,
    *,
    serves_ports: bool = True,
) -> Object:
    """The companion, or with Virtual delivery a pod of another role; without a token for Kubernetes."""
    virtual = cluster.spec.delivery is Delivery.VIRTUAL and role is PodRole.JOB
    mode = CompanionMode.ATTACH_ONLY if virtual and needs_submitter(job, cluster) else MODES[role]
    parts = parts_of(job, cluster, attempt, mode, virtual=virtual, serves_ports=serves_ports)
    metadata = _metadata(job, cluster, attempt, role)
    metadata["annotations"] = {**NOT_OURS, **({} if virtual else {ANNOTATION_REACHES: reaches(cluster)})}
    if parts.ports:
        metadata["labels"][LABEL_SLURMJOB] = job.name
    where = placed(job, cluster) if role is PodRole.JOB else placed_anywhere(job)
    extended = held_back(job, cluster) if role is PodRole.JOB else {}
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": job.spec.service_account_name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": _security(parts, program.users.user_of(job.namespace)),
        "containers": [_container(parts, program.image, extended)],
        **({"volumes": parts.volumes} if parts.volumes else {}),
        **where,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(parts: PodParts, image: str, extended: dict[str, str]) -> Object:
    return {
        "name": COMPANION_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": parts.env,
        "resources": {"requests": {**parts.requests, **extended}, "limits": {**parts.limits, **extended}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "File",
        "volumeMounts": parts.mounts,
        **({"ports": parts.ports, "readinessProbe": READINESS} if parts.ports else {}),
    }


def _security(parts: PodParts, user: int) -> Object:
    """For the `restricted` Pod Security level; a volume of results belongs to the companion's group."""
    context: Object = {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if parts.has_results:
        context |= {"fsGroup": user, "fsGroupChangePolicy": "OnRootMismatch"}
    return context


def _metadata(job: SlurmJob, cluster: SlurmCluster, attempt: int, role: PodRole) -> Object:
    owner = {
        "apiVersion": job.resource.api_version,
        "kind": job.resource.name,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    labels = {
        LABEL_JOB_UID: job.uid,
        LABEL_ATTEMPT: str(attempt),
        LABEL_ENDPOINT if cluster.namespace else LABEL_CLUSTER: cluster.name,
        LABEL_ROLE: role.value,
    }
    return {
        "name": pod_name(job.name, attempt, role),
        "namespace": job.namespace,
        "labels": labels,
        "ownerReferences": [owner],
    }
