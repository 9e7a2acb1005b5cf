"""What a cluster must hold for the operator to run: account, rights, Deployment. Pure."""

from __future__ import annotations

from typing import Any

from redbox_kube.names import GROUP
from redbox_operator.crds import all_crds

Object = dict[str, Any]
NAME = "redbox-operator"
LABELS = {"app.kubernetes.io/name": NAME}

RIGHTS: list[Object] = [
    {"apiGroups": [GROUP], "resources": ["slurmjobs", "slurmclusters"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [GROUP], "resources": ["slurmjobs"], "verbs": ["patch"]},
    {"apiGroups": [GROUP], "resources": ["slurmjobs/status"], "verbs": ["patch"]},
    {"apiGroups": [GROUP], "resources": ["slurmjobs/finalizers"], "verbs": ["update"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
    # kopf asks whether kinds exist, and which namespaces there are.
    {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "verbs": ["list", "watch"],
    },
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
]
OWN_TOKEN: list[Object] = [
    {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [NAME], "verbs": ["create"]},
]


def manifests(namespace: str, image: str, companion_image: str) -> list[Object]:
    """All of it, in the order in which it can be applied."""
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": namespace}
    return [
        *all_crds(),
        _object("v1", "Namespace", namespace, None),
        _object("v1", "ServiceAccount", NAME, namespace),
        *_bound("ClusterRole", None, RIGHTS, subject),
        *_bound("Role", namespace, OWN_TOKEN, subject),
        _deployment(namespace, image, companion_image),
    ]


def _bound(kind: str, namespace: str | None, rules: list[Object], subject: Object) -> list[Object]:
    api = "rbac.authorization.k8s.io"
    role = _object(f"{api}/v1", kind, NAME, namespace) | {"rules": rules}
    reference = {"apiGroup": api, "kind": kind, "name": NAME}
    binding = _object(f"{api}/v1", f"{kind}Binding", NAME, namespace)
    return [role, binding | {"roleRef": reference, "subjects": [subject]}]


def _deployment(namespace: str, image: str, companion_image: str) -> Object:
    environment = [
        {"name": "REDBOX_COMPANION_IMAGE", "value": companion_image},
        {"name": "REDBOX_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
    ]
    container = {
        "name": "operator",
        "image": image,
        "args": ["run"],
        "env": environment,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    }
    return _object("apps/v1", "Deployment", NAME, namespace) | {"spec": spec}


def _object(api_version: str, kind: str, name: str, namespace: str | None) -> Object:
    metadata: Object = {"name": name, "labels": LABELS}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
