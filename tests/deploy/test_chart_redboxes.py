"""The red-boxes of the chart's values: valid settings, a certificate for its Service, and few rights."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from redbox.callers.mapping.rules_file import read_rules
from redbox.server.certificates import facts_of, is_issued_by
from redbox.settings import load_settings

pytestmark = pytest.mark.timeout(1800)  # Helm is built first, once

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]
CA = b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()
REDBOX: dict[str, Any] = {
    "ssh": {"host": "login.example.org", "knownHosts": "login.example.org ssh-ed25519 AAAA"},
    "credentials": {"ca": {"secret": "ssh-ca", "addresses": ["192.0.2.0/24"]}},
    "observer": "redbox-watch",
}


def of_kind(objects: Objects, *kinds: str) -> Objects:
    return [one for one in objects if one["kind"] in kinds]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"redboxes": {"hpc1": REDBOX | {"observer": None}}}, "/redboxes/hpc1/observer"),
        ({"redboxes": {"hpc1": REDBOX | {"ssh": {"host": "login.example.org"}}}}, "knownHosts"),
        ({"redboxes": {"hpc1": REDBOX | {"ssh": {"host": "-oProxyCommand=x"}}}}, "/redboxes/hpc1/ssh/host"),
        ({"redboxes": {"hpc1": REDBOX | {"credentials": {}}}}, "/redboxes/hpc1/credentials"),
        (
            {"redboxes": {"hpc1": REDBOX | {"credentials": {"ca": {"secret": "ssh-ca", "addresses": []}}}}},
            "/redboxes/hpc1/credentials/ca/addresses",
        ),
        (
            {
                "redboxes": {"hpc1": REDBOX},
                "slurmClusters": {
                    "hpc1": {"endpoint": "https://x", "audience": "redbox.dev/x", "caBundle": ""}
                },
            },
            "are the same SlurmCluster",
        ),
        ({"redboxes": {"hpc1": REDBOX | {"slurmCluster": {"deliver": "Virtual"}}}}, "deliver"),
        (
            {"redboxes": {"hpc1": REDBOX | {"slurmCluster": {"delivery": "virtual"}}}},
            "/redboxes/hpc1/slurmCluster/delivery",
        ),
        ({"redboxes": {"operator": REDBOX}}, "one of the chart's own"),
        ({"redboxes": {"hpc1": REDBOX, "hpc1-tls": REDBOX}}, "redboxes.hpc1-tls"),
        ({"redboxes": {"dashboard-red-box": REDBOX}}, "redboxes.dashboard-red-box"),
        ({"redboxes": {"hpc1": REDBOX | {"tls": {"secret": "ours"}}}}, "redboxes.hpc1.tls.caBundle"),
        ({"redboxes": {"hpc1": REDBOX | {"identitySecret": "ours"}}}, "redboxes.hpc1.identitySecret needs"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(
    refused: Callable[[Mapping[str, Any]], str], values: dict[str, Any], named: str
) -> None:
    said = refused({"images": {"registry": "example.org"}, **values})
    assert named in said


def test_a_red_box_here_gets_no_right_but_to_the_public_keys(rendered: Render) -> None:
    objects = rendered(redboxes={"hpc1": REDBOX})
    bound = [
        binding["roleRef"]["name"]
        for binding in of_kind(objects, "ClusterRoleBinding", "RoleBinding")
        if any(subject["name"] == "redbox-server" for subject in binding["subjects"])
    ]
    assert bound == ["system:service-account-issuer-discovery"]
    (server,) = of_kind(objects, "StatefulSet")
    assert server["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_the_settings_of_a_red_box_here_are_valid_with_every_rule(rendered: Render, tmp_path: Path) -> None:
    rules = [{"namespaces": ["physics"], "user": "alice"}, {"tokens": ["abc"], "roles": ["reader"]}]
    objects = rendered(
        redboxes={"hpc1": REDBOX | {"rules": rules, "settings": {"exec": {"enabled": True}}}},
        resourced={"enabled": True},
    )
    (files,) = [one["data"] for one in of_kind(objects, "ConfigMap") if "redbox.yaml" in one["data"]]
    settings = yaml.safe_load(files["redbox.yaml"])
    settings["mapping"]["file"] = str(tmp_path / "rules.yaml")
    (tmp_path / "rules.yaml").write_text(files["rules.yaml"])
    (tmp_path / "redbox.yaml").write_text(yaml.safe_dump(settings))
    loaded = load_settings(tmp_path / "redbox.yaml")
    found = read_rules(tmp_path / "rules.yaml", loaded.clusters)
    assert loaded.exec.enabled
    assert loaded.agents.accounts_on_login_node
    assert [(rule.cluster, rule.user, rule.tokens, sorted(rule.roles)) for rule in found] == [
        ("kubernetes", None, None, ["operator", "reader", "requeue"]),
        ("kubernetes", None, None, ["operator", "reader"]),
        ("kubernetes", "alice", None, ["submit"]),
        (None, None, ("abc",), ["reader"]),
    ]


def test_its_certificate_is_for_its_service_and_signed_by_the_slurmclusters_ca(rendered: Render) -> None:
    objects = rendered(redboxes={"hpc1": REDBOX | {"names": ["hpc1.example.org", "192.0.2.5"]}})
    (pair,) = [one["data"] for one in of_kind(objects, "Secret") if "tls.crt" in one["data"]]
    (cluster,) = of_kind(objects, "SlurmCluster")
    certificate = b64decode(pair["tls.crt"])
    facts = facts_of(certificate)
    assert urlsplit(cluster["spec"]["endpoint"]).hostname in facts.names
    assert {"hpc1.example.org", "localhost"} <= set(facts.names)
    assert facts.addresses == ("127.0.0.1", "192.0.2.5")
    assert is_issued_by(certificate, b64decode(cluster["spec"]["caBundle"]))


def test_it_is_not_killed_while_it_starts_late_among_all_that_come_back(rendered: Render) -> None:
    """A flood from before a restart, or a large journal: killed for it, it would start again and again."""
    (server,) = of_kind(rendered(redboxes={"hpc1": REDBOX}), "StatefulSet")
    (container,) = server["spec"]["template"]["spec"]["containers"]
    start, alive = container["startupProbe"], container["livenessProbe"]
    assert start["httpGet"] == alive["httpGet"]
    assert start["periodSeconds"] * start["failureThreshold"] >= 300


@pytest.mark.parametrize(("kind", "from_outside"), [("ClusterIP", False), ("LoadBalancer", True)])
def test_its_policy_admits_callers_from_outside_if_its_service_does(
    rendered: Render, kind: str, *, from_outside: bool
) -> None:
    objects = rendered(redboxes={"hpc1": REDBOX | {"service": {"type": kind}}})
    (policy,) = [one for one in of_kind(objects, "NetworkPolicy") if one["metadata"]["name"] == "redbox-hpc1"]
    (rule,) = policy["spec"]["ingress"]
    assert ("from" not in rule) is from_outside


@pytest.mark.parametrize(
    ("server", "ports"), [("https://kubernetes.default.svc", 2), ("https://192.0.2.1:16443", 3)]
)
def test_its_policy_lets_it_reach_an_api_server_with_a_port_of_its_own(
    rendered: Render, server: str, ports: int
) -> None:
    objects = rendered(redboxes={"hpc1": REDBOX | {"apiServer": server}})
    (policy,) = [one for one in of_kind(objects, "NetworkPolicy") if one["metadata"]["name"] == "redbox-hpc1"]
    _, to_server, _ = policy["spec"]["egress"]
    assert to_server["ports"] == [{"port": 443}, {"port": 6443}, {"port": 16443}][:ports]


def endpoints_of_monitor(rendered: Render, **values: Any) -> Objects:
    objects = rendered(
        redboxes={"hpc1": REDBOX | {"metricsToken": "token", **values}}, monitoring={"podMonitor": True}
    )
    (monitor,) = [one for one in of_kind(objects, "PodMonitor") if one["metadata"]["name"] == "redbox-hpc1"]
    endpoints: Objects = monitor["spec"]["podMetricsEndpoints"]
    (files,) = [one["data"] for one in of_kind(objects, "ConfigMap") if "redbox.yaml" in one["data"]]
    (cluster,) = of_kind(objects, "SlurmCluster")
    for endpoint in endpoints:
        assert endpoint["tlsConfig"]["ca"] == {"configMap": {"name": "redbox-hpc1", "key": "ca.crt"}}
        assert endpoint["authorization"] == {"credentials": {"name": "token", "key": "token"}}
    assert files["ca.crt"].encode() == b64decode(cluster["spec"]["caBundle"])
    return endpoints


def labels_of(endpoint: dict[str, Any]) -> dict[str, str]:
    return {rule["targetLabel"]: rule["replacement"] for rule in endpoint["relabelings"]}


def test_its_metrics_have_the_label_that_dashboards_and_alerts_select_by(rendered: Render) -> None:
    (endpoint,) = endpoints_of_monitor(rendered)
    assert (endpoint["path"], labels_of(endpoint)) == ("/metrics", {"cluster": "hpc1"})


def test_families_of_slurms_metrics_are_targets_that_differ(rendered: Render) -> None:
    """Samples of one pod's targets with the same labels would replace each other."""
    own, *families = endpoints_of_monitor(rendered, slurmMetrics=["jobs", "users-accounts"])
    assert own["path"] == "/metrics"
    assert [(one["path"], labels_of(one)) for one in families] == [
        ("/metrics/slurm/jobs", {"cluster": "hpc1", "family": "jobs"}),
        ("/metrics/slurm/users-accounts", {"cluster": "hpc1", "family": "users-accounts"}),
    ]


@pytest.mark.parametrize(
    "tls", [{"secret": "ours", "caBundle": CA}, {"issuerRef": {"name": "site"}, "caBundle": CA}]
)
def test_its_metrics_are_verified_by_the_ca_of_its_certificate(rendered: Render, tls: dict[str, Any]) -> None:
    assert endpoints_of_monitor(rendered, tls=tls)
