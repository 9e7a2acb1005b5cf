"""The chart of a red-box of one's own: namespaced objects only, valid settings, no right in Kubernetes."""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from redbox.server.certificates import facts_of, is_issued_by
from redbox.settings import load_settings
from redbox_bed.core.places import CHECKOUT

pytestmark = pytest.mark.timeout(1800)  # Helm is built first, once

CHART = CHECKOUT / "deploy/chart-personal"
Objects = dict[str, dict[str, Any]]
VALUES: dict[str, Any] = {
    "images": {"registry": "example.org"},
    "ssh": {
        "host": "login.example.org",
        "user": "alice",
        "knownHosts": "login.example.org ssh-ed25519 AAAA",
        "secret": "hpc1-key",
    },
}


def template(helm: Path, release: str = "hpc1", **values: Any) -> subprocess.CompletedProcess[str]:
    command = [str(helm), "template", release, str(CHART), "--namespace", "alice", "--values=-"]
    return subprocess.run(
        command, input=json.dumps(VALUES | values), check=False, capture_output=True, text=True, timeout=60
    )


def rendered(helm: Path, **values: Any) -> Objects:
    ended = template(helm, **values)
    assert ended.returncode == 0, ended.stderr
    return {one["kind"]: one for one in yaml.safe_load_all(ended.stdout) if one}


def test_all_of_it_is_in_the_namespace_and_nothing_of_it_is_a_right(helm: Path) -> None:
    objects = rendered(helm)
    assert {one["metadata"].get("namespace") for one in objects.values()} == {"alice"}
    assert not {kind for kind in objects if "Role" in kind}
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in (*pod["containers"], *pod["initContainers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_its_user_is_of_the_namespace_or_the_one_that_is_chosen(helm: Path) -> None:
    def user(**values: Any) -> int:
        pod = rendered(helm, **values)["StatefulSet"]["spec"]["template"]["spec"]
        context: dict[str, int] = pod["securityContext"]
        assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"]
        return context["runAsUser"]

    assert 1_500_000_000 <= user() < 1_800_000_000
    assert user(runAsUser=65532) == 65532


def test_its_settings_are_valid_and_map_this_namespace_alone_to_the_account(
    helm: Path, tmp_path: Path
) -> None:
    ssh = VALUES["ssh"] | {
        "jump": {"host": "jump.example.org", "port": 2222},
        "path": "/opt/slurm/bin:/usr/bin",
    }
    files = rendered(helm, ssh=ssh, serviceAccounts=["default"])["ConfigMap"]["data"]
    settings = yaml.safe_load(files["redbox.yaml"])
    audience = tmp_path / "audience"
    audience.write_text("redbox.dev/ns/alice/0b0f2f0e-6f5e-4d3c-9a52-3d0f6a3f1c11")
    settings["callers"]["clusters"][0]["audience_file"] = str(audience)
    (tmp_path / "redbox.yaml").write_text(yaml.safe_dump(settings))
    loaded = load_settings(tmp_path / "redbox.yaml")
    assert loaded.agents.ssh is not None
    assert loaded.agents.ssh.jump is not None
    assert (loaded.agents.ssh.observer, loaded.agents.ssh.jump.port) == ("alice", 2222)
    assert [
        (rule.namespaces, rule.service_accounts, rule.user, sorted(rule.roles))
        for rule in loaded.mapping.rules
    ] == [
        (("redbox-system",), ("redbox-operator",), None, ["operator", "reader", "requeue"]),
        (("alice",), ("default",), "alice", ["submit"]),
    ]


@pytest.mark.parametrize(
    ("jump", "port"), [({}, 2222), ({"host": "jump.example.org"}, 22), ({"host": "jump", "port": 2200}, 2200)]
)
def test_its_policy_lets_it_reach_the_next_host_of_the_way(
    helm: Path, jump: dict[str, Any], port: int
) -> None:
    values = {"ssh": VALUES["ssh"] | {"port": 2222, "jump": jump}, "apiServer": "https://192.0.2.1:16443"}
    policy = rendered(helm, **values)["NetworkPolicy"]
    *_, to_server, to_login = policy["spec"]["egress"]
    assert to_login == {"ports": [{"port": port}]}
    assert {"port": 16443} in to_server["ports"]


def test_a_pod_that_never_gets_ready_does_not_hold_back_the_values_that_repair_it(helm: Path) -> None:
    assert rendered(helm)["StatefulSet"]["spec"]["podManagementPolicy"] == "Parallel"


@pytest.mark.parametrize(("release", "allowed"), [("a" * 45, True), ("a" * 46, False), ("hpc1.alice", False)])
def test_a_release_has_a_name_that_its_pod_can_have(helm: Path, release: str, *, allowed: bool) -> None:
    """Else its objects are made, and no pod: a label of it would be too long."""
    ended = template(helm, release)
    assert (ended.returncode == 0) is allowed
    assert allowed or f"the release's name {release} is also" in ended.stderr


@pytest.mark.parametrize("endpoint", ["", "https://192.0.2.7:8443", "https://box.example.org"])
def test_its_certificate_is_for_the_address_of_its_slurmendpoint(helm: Path, endpoint: str) -> None:
    objects = rendered(helm, endpoint=endpoint)
    spec = objects["SlurmEndpoint"]["spec"]
    certificate = b64decode(objects["Secret"]["data"]["tls.crt"])
    facts = facts_of(certificate)
    assert urlsplit(spec["endpoint"]).hostname in {*facts.names, *facts.addresses}
    assert is_issued_by(certificate, b64decode(spec["caBundle"]))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"ssh": VALUES["ssh"] | {"host": "-oProxyCommand=x"}}, "/ssh/host"),
        ({"ssh": VALUES["ssh"] | {"user": ""}}, "/ssh/user"),
        ({"ssh": VALUES["ssh"] | {"knownHosts": ""}}, "/ssh/knownHosts"),
        ({"audience": "redbox.dev/hpc1/another"}, "audience"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(helm: Path, values: dict[str, Any], named: str) -> None:
    ended = template(helm, **values)
    assert ended.returncode != 0
    assert named in ended.stderr
