"""What resourced's token may do with pods and volumes, asked of the real API server: next to nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.delivery import NAMESPACE
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.resourced_process import install
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("bare")]
RESOURCED = f"system:serviceaccount:{NAMESPACE}:redbox-resourced"
AS_RESOURCED = (f"--as={RESOURCED}", "--dry-run=server", "--output=json")
NAMES_TAINT = {"key": "redbox.dev/slurm", "operator": "Exists"}
UNREADY, AWAY = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
POLICIES = ("redbox-pods", "redbox-slices", "redbox-volumes", "redbox-tokens")
Object = dict[str, Any]


@pytest.fixture(scope="module")
def kubectl(bed: Bed) -> Iterator[Kubernetes]:
    """The cluster's administrator, once the API server holds resourced to the policies."""
    kubectl = Kubernetes(bed)
    install(bed, kubectl, pods=True)
    volume = volume_of({"hostPath": {"path": "/var/empty"}})
    eventually(lambda: "redbox.dev/directory only" in refusal(kubectl, *CREATE, stdin=volume))
    yield kubectl
    kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", *POLICIES[:3])
    kubectl("delete", "clusterrolebinding,clusterrole", "redbox-resourced-runs-pods")
    kubectl("delete", "storageclass/redbox-directory", "csidriver/directory.redbox.dev")
    install(bed, kubectl)


CREATE = ("create", "--filename=-", *AS_RESOURCED)


def refusal(kubectl: Kubernetes, *arguments: str, stdin: str = "") -> str:
    try:
        kubectl(*arguments, stdin=stdin)
    except BedError as refused:
        return str(refused)
    return ""


def volume_of(source: Object) -> str:
    spec = {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], **source}
    kind = {"apiVersion": "v1", "kind": "PersistentVolume"}
    return json.dumps({**kind, "metadata": {"name": f"t-{uuid4().hex[:6]}"}, "spec": spec})


def made_pod(kubectl: Kubernetes, **spec: Any) -> Iterator[str]:
    name = f"t-{uuid4().hex[:6]}"
    containers = [{"name": "main", "image": "none"}]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"a": "b"}},
        "spec": {"containers": containers, **spec},
    }
    kubectl("create", "--filename=-", stdin=json.dumps(body))
    yield name
    kubectl("delete", "pod", name, "--namespace=default", "--force", "--grace-period=0")


@pytest.fixture
def virtual(kubectl: Kubernetes) -> Iterator[str]:
    """A pod that is bound to a virtual node and names it."""
    node = f"t.{uuid4().hex[:6]}"
    spec = {"providerID": f"redbox://{node.replace('.', '/')}"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": spec}
    kubectl("create", "--filename=-", stdin=json.dumps(body))
    yield from made_pod(kubectl, nodeName=node, tolerations=[NAMES_TAINT])
    kubectl("delete", "node", node)


@pytest.fixture
def ordinary(kubectl: Kubernetes) -> Iterator[str]:
    """A pod of somebody else, which no node has."""
    yield from made_pod(kubectl, nodeSelector={"example.org/none": "true"})


def tolerations(kubectl: Kubernetes, pod: str) -> list[Object]:
    found: list[Object] = json.loads(kubectl("get", "pod", pod, "--namespace=default", "--output=json"))[
        "spec"
    ]["tolerations"]
    return found


def patch(pod: str, *operations: Object) -> tuple[str, ...]:
    place = ("patch", "pod", pod, "--namespace=default", "--type=json")
    return (*place, f"--patch={json.dumps(operations)}", *AS_RESOURCED)


def seconds(kubectl: Kubernetes, pod: str, key: str) -> str:
    """The path of the seconds of this toleration."""
    keys = [toleration.get("key") for toleration in tolerations(kubectl, pod)]
    return f"/spec/tolerations/{keys.index(key)}/tolerationSeconds"


def test_the_seconds_of_both_tolerations_are_lifted_or_lengthened(kubectl: Kubernetes, virtual: str) -> None:
    paths = [seconds(kubectl, virtual, key) for key in (UNREADY, AWAY)]
    kubectl(*patch(virtual, *({"op": "remove", "path": path} for path in paths)))
    kubectl(*patch(virtual, {"op": "replace", "path": paths[0], "value": 100_000}))


@pytest.mark.parametrize(
    ("said", "operation"),
    [
        ("metadata", {"op": "add", "path": "/metadata/labels/x", "value": "y"}),
        ("metadata", {"op": "remove", "path": "/metadata/labels"}),
        ("metadata", {"op": "add", "path": "/metadata/annotations", "value": {"x": "y"}}),
        ("metadata", {"op": "add", "path": "/metadata/finalizers", "value": ["example.org/for-ever"]}),
        ("spec of a pod", {"op": "replace", "path": "/spec/containers/0/image", "value": "other"}),
        ("spec of a pod", {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1}),
        ("lengthen or lift", {"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}),
    ],
)
def test_nothing_else_of_such_a_pod_is_changed(
    kubectl: Kubernetes, virtual: str, said: str, operation: Object
) -> None:
    refused = refusal(kubectl, *patch(virtual, operation))
    assert "resourced may" in refused
    assert said in refused


def test_the_seconds_are_not_shortened(kubectl: Kubernetes, virtual: str) -> None:
    shorter = {"op": "replace", "path": seconds(kubectl, virtual, AWAY), "value": 1}
    assert "lengthen or lift" in refusal(kubectl, *patch(virtual, shorter))


def test_of_an_ordinary_pod_nothing_at_all_is_changed(kubectl: Kubernetes, ordinary: str) -> None:
    lifted = {"op": "remove", "path": seconds(kubectl, ordinary, AWAY)}
    assert "on virtual nodes only" in refusal(kubectl, *patch(ordinary, lifted))


def test_volumes_are_of_its_own_driver(kubectl: Kubernetes) -> None:
    own = {"csi": {"driver": "directory.redbox.dev", "volumeHandle": "h"}}
    kubectl(*CREATE, stdin=volume_of(own))
    for other in ({"hostPath": {"path": "/etc"}}, {"csi": {"driver": "example.org", "volumeHandle": "h"}}):
        assert "redbox.dev/directory only" in refusal(kubectl, *CREATE, stdin=volume_of(other))


def test_endpoint_slices_are_its_own_and_of_pods(kubectl: Kubernetes) -> None:
    own = {"endpointslice.kubernetes.io/managed-by": "resourced.redbox.dev"}
    pod = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]
    kubectl(*CREATE, stdin=slice_of(labels=own, ownerReferences=pod))
    others: tuple[Object, ...] = ({"labels": own}, {"ownerReferences": pod}, {})
    for other in others:
        assert "its own EndpointSlices only" in refusal(kubectl, *CREATE, stdin=slice_of(**other))
    apply = ("apply", "--server-side", "--force-conflicts", "--validate=false", *CREATE[1:])
    taken = slice_of(name="kubernetes", labels=own, ownerReferences=pod)
    assert "its own EndpointSlices only" in refusal(kubectl, *apply, stdin=taken)


def slice_of(**metadata: Any) -> str:
    body = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4"}
    name = {"name": f"t-{uuid4().hex[:6]}", "namespace": "default"}
    return json.dumps({**body, "metadata": {**name, **metadata}, "endpoints": []})


def test_the_api_server_finds_no_fault_in_these_policies(kubectl: Kubernetes) -> None:
    for name in POLICIES:

        def checked(name: str = name) -> Object | None:
            policy = json.loads(kubectl("get", "validatingadmissionpolicy", name, "--output=json"))
            status: Object = policy.get("status", {})
            return status if status.get("observedGeneration") == policy["metadata"]["generation"] else None

        assert eventually(checked)["typeChecking"].get("expressionWarnings", []) == []
