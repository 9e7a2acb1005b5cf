"""Pods as the API server stores them, and their requests."""

from __future__ import annotations

import base64
from typing import Any

from redbox_api.models import JobRequest
from redbox_api.pod_parts import ContainerProgram, PodProgram
from redbox_clusters.slurm_cluster import PodsSpec
from redbox_resourced.translation.pod import TargetPartition, translate
from redbox_resourced.translation.references import PodReferences

TOKEN_VOLUME: dict[str, Any] = {
    "name": "kube-api-access-x7k2p",
    "projected": {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {
                            "path": "namespace",
                            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                        }
                    ]
                }
            },
        ],
    },
}
TOKEN_MOUNT = {
    "name": "kube-api-access-x7k2p",
    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    "readOnly": True,
}


def container(name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox:1.36", **fields}


def limited(name: str = "main", requests: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    return container(name, resources={"requests": requests or {}, **fields.pop("resources", {})}, **fields)


def pod(*containers: dict[str, Any], metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "alice", "name": "train", "uid": "uid-1", **(metadata or {})},
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def secret(**values: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}}


def requested(given: dict[str, Any], *, max_time_s: int | None = None, **references: Any) -> JobRequest:
    settings, partition = PodsSpec(enabled=True, scratch="/scratch"), TargetPartition("debug", max_time_s)
    return translate(given, PodReferences(**references), settings, partition)


def program(given: dict[str, Any], **references: Any) -> PodProgram:
    found = requested(given, **references).pod
    assert found is not None
    return found


def translated(references: dict[str, Any] | None = None, /, **fields: Any) -> ContainerProgram:
    """The pod's one container, with these fields."""
    return program(pod(container(**fields)), **(references or {})).containers[0]


def annotated(**annotations: str) -> dict[str, Any]:
    given = {f"redbox.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return pod(metadata={"annotations": given})
