"""Who may write objects of hosted Slurm: those who may do what its pods can."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from tests.e2e.harness.hosted_slurm import NAMESPACE, hosting
from tests.e2e.harness.kubernetes import Kubernetes

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(400)]
MALLORY = "mallory"
KINDS = ["controllers", "nodesets", "loginsets", "restapis", "accountings", "tokens"]
WRITES_KINDS = {"apiGroups": ["slurm.redbox.dev"], "resources": KINDS, "verbs": ["create", "get", "patch"]}
MAKES_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
READS_OWN = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["own"], "verbs": ["get"]}
REF = {"name": "slurm"}


@pytest.fixture(scope="module")
def kubectl(bed: Bed) -> Iterator[Kubernetes]:
    with hosting(bed, "24.11") as kubernetes:
        yield kubernetes


def applies(kubectl: Kubernetes, kind: str, spec: dict[str, Any], *rules: dict[str, Any]) -> str:
    """As one who has these rights only; the server keeps nothing."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": MALLORY, "namespace": NAMESPACE},
        "rules": [WRITES_KINDS, *rules],
    }
    binding = {
        **role,
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": MALLORY},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MALLORY}],
    }
    del binding["rules"]
    kubectl.apply(json.dumps(role))
    kubectl.apply(json.dumps(binding))
    body = {
        "apiVersion": "slurm.redbox.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": "theirs", "namespace": NAMESPACE},
        "spec": spec,
    }
    return kubectl(
        *("create", "--dry-run=server", f"--as={MALLORY}", "--output=name", "--filename=-"),
        stdin=json.dumps(body),
    )


def node_set(template: dict[str, Any] | None = None, **slurmd: Any) -> dict[str, Any]:
    limits = {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}
    more = {"template": {"spec": template}} if template else {}
    return {"controllerRef": REF, "slurmd": {**limits, **slurmd}, **more}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Controller", {}),
        ("NodeSet", node_set()),
        ("RestApi", {"controllerRef": REF}),
        ("Token", {"controllerRef": REF, "username": "alice"}),
    ],
)
def test_an_author_must_be_allowed_to_create_pods(
    kubectl: Kubernetes, kind: str, spec: dict[str, Any]
) -> None:
    with pytest.raises(BedError, match="may not create pods in namespace hpc"):
        applies(kubectl, kind, spec)
    assert "theirs" in applies(kubectl, kind, spec, MAKES_PODS)


@pytest.mark.parametrize(
    "spec",
    [
        node_set(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
        node_set({"volumes": [{"name": "a", "secret": {"secretName": "s"}}]}),
        node_set({"volumes": [{"name": "a", "projected": {"sources": [{"secret": {"name": "s"}}]}}]}),
        node_set({"initContainers": [{"name": "a", "envFrom": [{"secretRef": {"name": "s"}}]}]}),
    ],
)
def test_a_template_names_no_secret_that_its_author_may_not_get(
    kubectl: Kubernetes, spec: dict[str, Any]
) -> None:
    with pytest.raises(BedError, match="the template refers to Secrets, and you may not get those"):
        applies(kubectl, "NodeSet", spec, MAKES_PODS, READS_OWN)


def with_key(secret: str) -> dict[str, Any]:
    return {"slurmKeyRef": {"name": secret, "key": "slurm.key"}}


def with_munge(secret: str) -> dict[str, Any]:
    address = {"external": True, "externalConfig": {"host": "a", "port": 6817}}
    munge = {"redbox": {"munge": {"keyRef": {"name": secret, "key": "munge.key"}}}}
    return {**address, "jwtKeyRef": {"name": "own", "key": "jwt.key"}, **munge}


@pytest.mark.parametrize("controller", [with_key, with_munge])
def test_a_reference_needs_the_right_to_get_that_secret(
    kubectl: Kubernetes, controller: Callable[[str], dict[str, Any]]
) -> None:
    with pytest.raises(BedError, match="may not get the Secret others"):
        applies(kubectl, "Controller", controller("others"), MAKES_PODS, READS_OWN)
    assert "theirs" in applies(kubectl, "Controller", controller("own"), MAKES_PODS, READS_OWN)


def test_a_controller_with_nodes_is_not_deleted_in_the_foreground(kubectl: Kubernetes) -> None:
    """Its image names no release, so nothing of it starts; it can be deleted nevertheless."""
    name, kind = "unbuilt", "controllers.slurm.redbox.dev"
    metadata = {"name": name, "namespace": NAMESPACE}
    spec = {"slurmctld": {"image": "slurm:latest"}}
    body = {
        "apiVersion": "slurm.redbox.dev/v1alpha1",
        "kind": "Controller",
        "metadata": metadata,
        "spec": spec,
    }
    kubectl.apply(json.dumps(body))
    kubectl.patch(kind, name, {"status": {"nodes": 2}}, NAMESPACE, "status")
    with pytest.raises(BedError, match="the Controller unbuilt has nodes"):
        kubectl.delete(kind, name, namespace=NAMESPACE, propagationPolicy="Foreground")
    kubectl.delete(kind, name, namespace=NAMESPACE)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"nodeName": "k1"}, "the scheduler chooses the node"),
        ({"serviceAccountName": "admin"}, "may not use the service account admin"),
    ],
)
def test_a_template_takes_neither_a_node_nor_the_account_of_another(
    kubectl: Kubernetes, template: dict[str, Any], message: str
) -> None:
    with pytest.raises(BedError, match=message):
        applies(kubectl, "NodeSet", node_set(template), MAKES_PODS)


def test_only_the_operator_protects_pods_and_has_objects_of_its_kinds(kubectl: Kubernetes) -> None:
    def pod(**metadata: Any) -> dict[str, Any]:
        restricted = {"name": "a", "image": "a"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "forged", "namespace": NAMESPACE, **metadata},
            "spec": {"containers": [restricted]},
        }

    owner = {"apiVersion": "slurm.redbox.dev/v1alpha1", "kind": "NodeSet", "name": "cpu", "uid": "1"}
    with pytest.raises(BedError, match="only redbox-hosting sets the label"):
        kubectl.create(pod(labels={"slurm.redbox.dev/protected": "true"}), dryRun="All")
    with pytest.raises(BedError, match="only redbox-hosting makes objects"):
        kubectl.create(pod(ownerReferences=[owner]), dryRun="All")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "slurm-keys", "namespace": NAMESPACE, "ownerReferences": [owner]},
    }
    with pytest.raises(BedError, match="only redbox-hosting makes objects"):
        kubectl.create(secret, dryRun="All")
