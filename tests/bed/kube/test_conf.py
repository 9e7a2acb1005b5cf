"""What the cluster's programs are told."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from redbox_bed.core.places import PACKAGE
from redbox_bed.core.plan import Options, make_plan
from redbox_bed.images.node_images import COREDNS
from redbox_bed.kube.conf import (
    AUTHORITIES,
    CLUSTER_DOMAIN,
    DNS_SERVICE,
    Machine,
    Setup,
    identities,
    kubeconfig,
)
from redbox_bed.kube.control_plane import control_plane, roles
from redbox_bed.kube.daemons import digest_of, unready_nodes
from redbox_bed.kube.node import node

PLAN = make_plan(Options())
NAMES = (
    [identity.name for identity in identities(PLAN)]
    + [f"{name}-ca" for name in AUTHORITIES]
    + ["service-accounts"]
)
PKI = {f"{name}.{kind}": f"{name} {kind}".encode() for name in NAMES for kind in ("crt", "key", "pub")}
BOUND = Machine("/programs", cgroup_version=1, may_raise_limits=False)
FREE = Machine("/programs", cgroup_version=2, may_raise_limits=True)


def flags_of(setup: Setup, program: str) -> dict[str, str]:
    argv = next(daemon.argv for daemon in setup.daemons if daemon.name == program)
    return dict(flag.removeprefix("--").split("=", 1) for flag in argv[1:])


def file_of(setup: Setup, name: str) -> Any:
    content = next(file.content for file in setup.files if file.path.endswith("/" + name))
    return yaml.safe_load(content)


def node_setup(name: str, machine: Machine = FREE) -> Setup:
    return node(PLAN, PLAN.host(name), machine, PKI)


def test_pods_have_the_clusters_own_dns_only_where_there_is_one() -> None:
    with_dns = file_of(node(PLAN, PLAN.host("k1"), FREE, PKI, has_dns=True), "kubelet.yaml")
    assert (with_dns["clusterDNS"], with_dns["clusterDomain"]) == (["10.96.0.10"], "cluster.local")
    assert "clusterDNS" not in file_of(node_setup("k1"), "kubelet.yaml")


def test_coredns_serves_where_kubelets_send_pods() -> None:
    objects = list(yaml.safe_load_all((PACKAGE.parent / "coredns" / "coredns.yaml").read_text()))
    service = next(each for each in objects if each["kind"] == "Service")
    deployment = next(each for each in objects if each["kind"] == "Deployment")
    assert service["spec"]["clusterIP"] == DNS_SERVICE
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == COREDNS
    corefile = next(each for each in objects if each["kind"] == "ConfigMap")["data"]["Corefile"]
    assert CLUSTER_DOMAIN in corefile


def test_every_file_that_the_control_plane_is_told_of_is_there() -> None:
    setup = control_plane(PLAN, FREE, PKI)
    written = {file.path for file in setup.files}
    for daemon in setup.daemons:
        named = {word.partition("=")[2] for word in daemon.argv if "=/etc/kubernetes" in word}
        assert named <= written, daemon.name


def test_private_keys_are_for_root_alone() -> None:
    setups = (control_plane(PLAN, FREE, PKI), node_setup("k1"))
    secret = [file for setup in setups for file in setup.files if file.path.endswith((".key", ".conf"))]
    assert {file.mode for file in secret} == {0o600}


def test_the_authorities_keys_stay_on_the_control_plane() -> None:
    assert not [file.path for file in node_setup("k1").files if file.path.endswith("-ca.key")]


def test_the_api_server_checks_whom_it_talks_to_and_what_they_may() -> None:
    flags = flags_of(control_plane(PLAN, FREE, PKI), "kube-apiserver")
    assert flags["authorization-mode"] == "Node,RBAC"
    assert flags["kubelet-certificate-authority"]
    assert flags["etcd-servers"].startswith("https://")
    assert "NodeRestriction" in flags["enable-admission-plugins"]


def test_anonymous_requests_reach_health_and_public_keys_alone() -> None:
    anonymous = file_of(control_plane(PLAN, FREE, PKI), "authentication.yaml")["anonymous"]
    assert {condition["path"] for condition in anonymous["conditions"]} == {
        "/livez",
        "/readyz",
        "/healthz",
        "/openid/v1/jwks",
        "/.well-known/openid-configuration",
    }


@pytest.mark.parametrize("name", ["k1", "k2"])
def test_pods_of_a_node_have_addresses_that_the_switch_routes_to_it(name: str) -> None:
    bridge = file_of(node_setup(name), "10-pods.conflist")["plugins"][0]
    assert bridge["ipam"]["ranges"] == [[{"subnet": PLAN.host(name).pod_network}]]
    assert bridge["ipMasq"] is False


def test_a_kubelet_answers_no_stranger() -> None:
    kubelet = file_of(node_setup("k1"), "kubelet.yaml")
    assert kubelet["authentication"]["anonymous"]["enabled"] is False
    assert kubelet["authorization"]["mode"] == "Webhook"


@pytest.mark.parametrize(
    ("machine", "gates", "cgroups_per_qos"),
    [
        (BOUND, {"KubeletInUserNamespace": True, "InPlacePodVerticalScaling": False}, False),
        (FREE, None, None),
    ],
)
def test_a_kubelet_gives_up_only_what_the_machine_cannot_do(
    machine: Machine, gates: Mapping[str, bool] | None, *, cgroups_per_qos: bool | None
) -> None:
    kubelet = file_of(node_setup("k1", machine), "kubelet.yaml")
    assert kubelet.get("featureGates") == gates
    assert kubelet.get("cgroupsPerQOS") is cgroups_per_qos


def test_a_kubeconfig_holds_all_that_its_user_needs() -> None:
    configuration = yaml.safe_load(kubeconfig("https://127.0.0.1:16443", "admin", PKI))
    assert configuration["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:16443"
    assert set(configuration["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}


def test_roles_bind_only_what_kubernetes_itself_defines() -> None:
    for binding in yaml.safe_load_all(roles()):
        assert binding["roleRef"]["name"].startswith("system:")


def test_a_changed_flag_or_file_changes_the_digest() -> None:
    setup = node_setup("k1")
    assert digest_of(setup) == digest_of(node_setup("k1"))
    assert digest_of(setup) != digest_of(node_setup("k1", BOUND))
    assert digest_of(setup) != digest_of(Setup(setup.files, setup.daemons[:-1]))


def ready(name: str, status: str, heartbeat: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat}
    return {"metadata": {"name": name}, "status": {"conditions": [condition]}}


def test_a_node_counts_as_ready_only_by_the_word_of_the_kubelet_that_runs_now() -> None:
    started = dt.datetime(2026, 11, 21, 12, 0, 30, 500, tzinfo=dt.UTC)
    wanted: dict[str, dt.datetime | None] = {
        "old": started,
        "new": started,
        "kept": None,
        "bad": None,
        "absent": None,
    }
    nodes = [
        ready("old", "True", "2026-11-21T12:00:29Z"),
        ready("new", "True", "2026-11-21T12:00:30Z"),
        ready("kept", "True", "2026-11-21T11:00:00Z"),
        ready("bad", "Unknown", "2026-11-21T12:01:00Z"),
    ]
    assert unready_nodes(nodes, wanted) == ["old", "bad", "absent"]


def test_mutating_policies_are_there_only_where_they_were_asked_for() -> None:
    with_policies = control_plane(make_plan(Options(mutating_policies=True)), FREE, PKI)
    flags = flags_of(with_policies, "kube-apiserver")
    assert flags["feature-gates"] == "MutatingAdmissionPolicy=true"
    assert flags["runtime-config"] == "admissionregistration.k8s.io/v1beta1=true"
    assert "feature-gates" not in flags_of(control_plane(PLAN, FREE, PKI), "kube-apiserver")
