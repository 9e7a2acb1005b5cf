"""What the operator creates for a SlurmJob: pure functions from it and its SlurmCluster to objects."""

from __future__ import annotations

from typing import Any

from redbox_api.models import JobRequest
from redbox_kube.names import API_VERSION, LABEL_ATTEMPT, LABEL_CLUSTER, LABEL_JOB_UID
from redbox_kube.slurm_cluster import SlurmCluster
from redbox_operator.kinds import SlurmJob
from redbox_operator.known_names import (
    CA_FILE,
    COMPANION_CONTAINER,
    REQUEST_FILE,
    REQUEST_FOLDER,
    TOKEN_FILE,
    TOKEN_FOLDER,
    pod_name,
)

Object = dict[str, Any]
TOKEN_SECONDS = 3600
FIRST_ATTEMPT = 1


def job_request(job: SlurmJob) -> JobRequest:
    """What the companion asks of red-box."""
    spec = job.spec
    return JobRequest(
        batch=spec.batch,
        name=job.name,
        partition=spec.partition,
        account=spec.account,
        qos=spec.qos,
        resources=spec.resources,
        env={variable.name: variable.value for variable in spec.env},
        working_directory=spec.working_directory,
        output=spec.output,
        error=spec.error,
        options=spec.options,
    )


def config_map(job: SlurmJob, cluster: SlurmCluster) -> Object:
    """The attempt's request, frozen, and the CA of the red-box that it goes to."""
    request = job_request(job).model_dump_json(by_alias=True, exclude_defaults=True)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job),
        "immutable": True,
        "data": {REQUEST_FILE: request, CA_FILE: cluster.spec.ca_bundle.decode()},
    }


def companion_pod(job: SlurmJob, cluster: SlurmCluster, image: str) -> Object:
    """The companion: non-root, read-only, without rights, and without a token for Kubernetes."""
    metadata = _metadata(job)
    metadata["annotations"] = {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
        "sidecar.istio.io/inject": "false",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": job.spec.service_account_name,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 5,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(job, cluster, image)],
            "volumes": _volumes(job, cluster),
        },
    }


def _container(job: SlurmJob, cluster: SlurmCluster, image: str) -> Object:
    environment = {
        "REDBOX_ENDPOINT": cluster.spec.endpoint,
        "REDBOX_KEY": job.uid,
        "REDBOX_ATTEMPT": str(FIRST_ATTEMPT),
        "REDBOX_CA_FILE": f"{REQUEST_FOLDER}/{CA_FILE}",
        "REDBOX_REQUEST_FILE": f"{REQUEST_FOLDER}/{REQUEST_FILE}",
        "REDBOX_TOKEN_FILE": f"{TOKEN_FOLDER}/{TOKEN_FILE}",
    }
    return {
        "name": COMPANION_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "resources": {"requests": {"cpu": "10m", "memory": "24Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"name": "job", "mountPath": REQUEST_FOLDER, "readOnly": True},
            {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True},
        ],
    }


def _volumes(job: SlurmJob, cluster: SlurmCluster) -> list[Object]:
    token = {
        "audience": cluster.spec.audience,
        "expirationSeconds": TOKEN_SECONDS,
        "path": TOKEN_FILE,
    }
    return [
        {"name": "job", "configMap": {"name": pod_name(job.name)}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]


def _metadata(job: SlurmJob) -> Object:
    return {
        "name": pod_name(job.name),
        "namespace": job.namespace,
        "labels": {
            LABEL_JOB_UID: job.uid,
            LABEL_ATTEMPT: str(FIRST_ATTEMPT),
            LABEL_CLUSTER: job.spec.cluster,
        },
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "SlurmJob",
                "name": job.name,
                "uid": job.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
