"""What the operator creates for an attempt of a SlurmJob: its frozen request, and pods. Pure.

With Container delivery the companion does everything. With Virtual delivery it is bound to a virtual node,
where nothing of it runs; what needs a kubelet (values of Secrets, volumes) then has pods of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redbox_api.authorities import pem_of
from redbox_api.models import Dependency
from redbox_kube.names import LABEL_ATTEMPT, LABEL_CLUSTER, LABEL_JOB_UID
from redbox_kube.slurm_cluster import Delivery, SlurmCluster
from redbox_operator.api.constants import (
    ANNOTATION_REACHES,
    LABEL_ROLE,
    Mode,
    Role,
    pod_name,
)
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.companion.job_request import digest, frozen, job_request
from redbox_operator.companion.placement import held_back, partition_of, placed, placed_anywhere
from redbox_operator.companion.pod_spec import Parts, parts_of
from redbox_shared.pod_contract import CA_FILE, COMPANION_CONTAINER, REQUEST_FILE

Object = dict[str, Any]
FIRST_ATTEMPT = 1
USER = 65532
NOT_OURS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true", "sidecar.istio.io/inject": "false"}
MODES = {Role.JOB: Mode.WHOLE, Role.SUBMIT: Mode.SUBMIT_ONLY, Role.COLLECT: Mode.RESULTS_ONLY}


def config_map(
    job: SlurmJob,
    cluster: SlurmCluster,
    attempt: int = FIRST_ATTEMPT,
    dependencies: Sequence[Dependency] = (),
) -> Object:
    """The attempt's request, frozen, and the CA of the red-box that it goes to."""
    request = frozen(job_request(job, partition_of(job), dependencies))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job, cluster, attempt, Role.JOB),
        "immutable": True,
        "data": {REQUEST_FILE: request, CA_FILE: pem_of(cluster.spec.ca_bundle)},
    }


def reaches(cluster: SlurmCluster) -> str:
    """What `redbox.dev/reaches` says of a pod that was made for this SlurmCluster as it is now."""
    return digest(f"{cluster.spec.endpoint}\n{cluster.spec.ca_bundle.decode()}")


def request_digest(made: Object) -> str:
    """Of a ConfigMap's request: what `status.companion.request` says."""
    return digest(made["data"][REQUEST_FILE])


def needs_submitter(job: SlurmJob, cluster: SlurmCluster) -> bool:
    """Whether its request holds values that only a kubelet can read, and its companion has none."""
    spec = job.spec
    by_kubelet = spec.batch_from or (spec.container and spec.container.registry_secret)
    return cluster.spec.delivery is Delivery.VIRTUAL and bool(
        by_kubelet or any(variable.value_from for variable in spec.env)
    )


def needs_collector(job: SlurmJob, cluster: SlurmCluster) -> bool:
    """Whether its results need a pod that can mount a volume."""
    return cluster.spec.delivery is Delivery.VIRTUAL and job.spec.results is not None


def companion_pod(
    job: SlurmJob, cluster: SlurmCluster, attempt: int, image: str, role: Role = Role.JOB
) -> Object:
    """The companion, or with Virtual delivery a pod of another role: no rights, no token for Kubernetes."""
    virtual = cluster.spec.delivery is Delivery.VIRTUAL and role is Role.JOB
    mode = Mode.ATTACH_ONLY if virtual and needs_submitter(job, cluster) else MODES[role]
    parts = parts_of(job, cluster, attempt, mode, virtual=virtual)
    metadata = _metadata(job, cluster, attempt, role)
    metadata["annotations"] = {**NOT_OURS, **({} if virtual else {ANNOTATION_REACHES: reaches(cluster)})}
    where = placed(job, cluster) if role is Role.JOB else placed_anywhere(job)
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": job.spec.service_account_name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": _security(parts),
        "containers": [_container(parts, image, held_back(job, cluster) if role is Role.JOB else {})],
        **({"volumes": parts.volumes} if parts.volumes else {}),
        **where,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(parts: Parts, image: str, extended: dict[str, str]) -> Object:
    return {
        "name": COMPANION_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": parts.env,
        "resources": {
            "requests": {**parts.requests, **extended},
            "limits": {**parts.limits, **extended},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "File",
        "volumeMounts": parts.mounts,
    }


def _security(parts: Parts) -> Object:
    """As the `restricted` Pod Security level has it; a volume of results becomes the companion's group's."""
    context: Object = {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if parts.has_results:
        context |= {"fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch"}
    return context


def _metadata(job: SlurmJob, cluster: SlurmCluster, attempt: int, role: Role) -> Object:
    owner = {
        "apiVersion": job.resource.api_version,
        "kind": job.resource.kind,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    labels = {
        LABEL_JOB_UID: job.uid,
        LABEL_ATTEMPT: str(attempt),
        LABEL_CLUSTER: cluster.name,
        LABEL_ROLE: role.value,
    }
    return {
        "name": pod_name(job.name, attempt, role),
        "namespace": job.namespace,
        "labels": labels,
        "ownerReferences": [owner],
    }
