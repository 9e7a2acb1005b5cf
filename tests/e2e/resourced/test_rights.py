"""What resourced's token may do with nodes, asked of the real API server: of others' next to nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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
REAL = "k2"
AS_RESOURCED = (f"--as={RESOURCED}", "--dry-run=server", "--output=json")
LEASES = "--namespace=kube-node-lease"
KEY = "debug.hpc1.redbox.dev/partition"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nowhere", "uid": str(uuid4())}
Object = dict[str, Any]
Ask = Callable[..., Object]


@pytest.fixture(scope="module")
def kubectl(bed: Bed) -> Kubernetes:
    """The cluster's administrator, once the API server holds resourced to both policies."""
    kubectl = Kubernetes(bed)
    install(bed, kubectl)

    def holds() -> bool:
        label = ("label", "node", REAL, "mine=yes", f"--as={RESOURCED}", "--dry-run=server")
        renewal = ("label", "lease", REAL, LEASES, "mine=yes", f"--as={RESOURCED}", "--dry-run=server")
        return all("resourced" in _refusal(kubectl, *asked) for asked in (label, renewal))

    kubectl("delete", "clusterrolebinding,clusterrole", "t-reads", "--ignore-not-found")
    read = "--resource=leases.coordination.k8s.io,nodes,nodes/status"  # kubectl reads before it patches
    kubectl("create", "clusterrole", "t-reads", "--verb=get", read)
    kubectl("create", "clusterrolebinding", "t-reads", "--clusterrole=t-reads", f"--user={RESOURCED}")
    eventually(holds)
    return kubectl


@pytest.fixture(scope="module", autouse=True)
def cleaned(kubectl: Kubernetes) -> Iterator[None]:
    yield
    kubectl("delete", "clusterrolebinding,clusterrole", "t-reads")


def _refusal(kubectl: Kubernetes, *arguments: str, stdin: str = "") -> str:
    try:
        kubectl(*arguments, stdin=stdin)
    except BedError as refusal:
        return str(refusal)
    return ""


def patch(kind: str, name: str, body: Object, *options: str) -> tuple[str, ...]:
    return ("patch", kind, name, "--type=merge", f"--patch={json.dumps(body)}", *AS_RESOURCED, *options)


@pytest.fixture
def virtual(kubectl: Kubernetes) -> Iterator[str]:
    """A virtual node, whose labels a hand took away."""
    name = f"t.{uuid4().hex[:6]}"
    spec = {"providerID": f"redbox://{name.replace('.', '/')}"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
    kubectl("create", "--filename=-", stdin=json.dumps(node))
    yield name
    kubectl("delete", "node", name)


@pytest.mark.parametrize(
    ("said", "body"),
    [
        ("owners or finalizers", {"metadata": {"ownerReferences": [OWNER]}}),
        ("owners or finalizers", {"metadata": {"finalizers": ["example.org/for-ever"]}}),
        ("annotations", {"metadata": {"annotations": {"flannel.alpha.coreos.com/public-ip": "10.9.9.9"}}}),
        ("annotations", {"metadata": {"annotations": {"node.alpha.kubernetes.io/ttl": None}}}),
        ("labels", {"metadata": {"labels": {"redbox.dev/virtual": "true"}}}),
        ("spec", {"spec": {"unschedulable": True}}),
        ("spec", {"spec": {"providerID": "redbox://hpc1/debug"}}),
    ],
)
def test_of_a_real_node_resourced_changes_nothing_but_its_own_keys(
    kubectl: Kubernetes, said: str, body: Object
) -> None:
    refusal = _refusal(kubectl, *patch("node", REAL, body))
    assert "resourced may" in refusal
    assert said in refusal


@pytest.mark.parametrize(
    "status",
    [
        {"addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]},
        {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}},
        {"nodeInfo": {"kernelVersion": "0"}},
        {"images": [{"names": ["example.org/x"], "sizeBytes": 1}]},
        {"volumesInUse": ["kubernetes.io/csi/x"]},
        {"conditions": []},
    ],
)
def test_of_a_real_nodes_status_resourced_changes_nothing_but_resources(
    kubectl: Kubernetes, status: Object
) -> None:
    refusal = _refusal(kubectl, *patch("node", REAL, {"status": status}, "--subresource=status"))
    assert "resourced may change only resources" in refusal


def test_what_resourced_publishes_on_a_real_node_is_taken(kubectl: Kubernetes) -> None:
    own = {"labels": {KEY: "debug", "wlm.sylabs.io/partition": "debug"}, "annotations": {KEY: "debug"}}
    kubectl(*patch("node", REAL, {"metadata": own}))
    resources = {"debug.hpc1.redbox.dev/nodes": "3"}
    status = {"capacity": resources, "allocatable": resources}
    kubectl(*patch("node", REAL, {"status": status}, "--subresource=status"))


def test_a_virtual_node_gets_back_what_a_hand_took_away(kubectl: Kubernetes, virtual: str) -> None:
    metadata = {"labels": {"redbox.dev/virtual": "true"}, "annotations": {"redbox.dev/partition": "debug"}}
    kubectl(*patch("node", virtual, {"metadata": metadata}))
    addresses = [{"type": "InternalIP", "address": "10.9.9.9"}]
    kubectl(*patch("node", virtual, {"status": {"addresses": addresses}}, "--subresource=status"))


def test_resourced_beats_for_no_real_node(kubectl: Kubernetes) -> None:
    renewal = {"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}}
    assert "of virtual nodes only" in _refusal(kubectl, *patch("lease", REAL, renewal, LEASES))
    stolen = {"metadata": {"labels": {"redbox.dev/virtual": "true"}}}
    assert "of virtual nodes only" in _refusal(kubectl, *patch("lease", REAL, stolen, LEASES))
    delete = ("delete", "lease", REAL, LEASES, f"--as={RESOURCED}", "--dry-run=server")
    assert "of virtual nodes only" in _refusal(kubectl, *delete)


def lease(name: str, **metadata: object) -> str:
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    metadata |= {"name": name, "namespace": "kube-node-lease"}
    return json.dumps({**kind, "metadata": metadata, "spec": {"holderIdentity": name}})


def test_resourced_makes_leases_with_the_label_only(kubectl: Kubernetes) -> None:
    create = ("create", "--filename=-", *AS_RESOURCED)
    kubectl(*create, stdin=lease("t.new", labels={"redbox.dev/virtual": "true"}))
    assert "of virtual nodes only" in _refusal(kubectl, *create, stdin=lease("t.new"))


@pytest.fixture
def old_lease(kubectl: Kubernetes) -> Iterator[str]:
    """As a release that knew no label made and renewed it."""
    name = f"t.{uuid4().hex[:6]}"
    kubectl("create", "--filename=-", stdin=lease(name))
    renewal = '{"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}'
    by = ("--field-manager=redbox-resourced", "--type=merge", f"--patch={renewal}")
    kubectl("patch", "lease", name, LEASES, *by)
    yield name
    kubectl("delete", "lease", name, LEASES)


def test_a_lease_of_an_older_release_is_renewed_labelled_and_removed(
    kubectl: Kubernetes, old_lease: str
) -> None:
    renewal = {"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}}
    kubectl(*patch("lease", old_lease, renewal, LEASES))
    labelled = {"metadata": {"labels": {"redbox.dev/virtual": "true"}}}
    kubectl(*patch("lease", old_lease, labelled, LEASES))
    kubectl("delete", "lease", old_lease, LEASES, f"--as={RESOURCED}", "--dry-run=server")


def test_the_api_server_finds_no_fault_in_these_policies(kubectl: Kubernetes) -> None:
    for name in ("redbox-nodes", "redbox-leases"):

        def checked(name: str = name) -> Object | None:
            policy = json.loads(kubectl("get", "validatingadmissionpolicy", name, "--output=json"))
            status: Object = policy.get("status", {})
            return status if status.get("observedGeneration") == policy["metadata"]["generation"] else None

        assert eventually(checked)["typeChecking"].get("expressionWarnings", []) == []
