"""The objects of a LoginSet: snapshots, and Pod Security."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_hosting.api.daemons import LoginSetSpec
from redbox_hosting.build.config.releases import SlurmRelease
from redbox_hosting.build.pods.login import LoginCell, known_hosts, login_files, sshd_set
from redbox_hosting.build.pods.network import logins_service, ssh_service
from redbox_hosting.build.pods.pod_security import beyond_plain, places_of
from tests.hosting.build.pod_security import beyond_restricted
from tests.hosting.factories import cell
from tests.hosting.snapshots import check

SNAPSHOTS = Path(__file__).with_name("snapshots")
USERS = {"redbox": {"users": {"configMapRef": {"name": "people"}}}}
HOMES = {"redbox": {"homes": {"claimName": "homes"}}}
REF = {"controllerRef": {"name": "slurm"}}
LOGIN = LoginCell(
    name="login",
    uid="uid-of-login",
    spec=LoginSetSpec.model_validate(
        REF
        | {
            "replicas": 2,
            "rootSshAuthorizedKeys": "ssh-ed25519 AAAA root",
            "extraSshdConfig": "MaxStartups 100",
            "login": {"volumeMounts": [{"name": "home", "mountPath": "/home"}]},
            "template": {
                "spec": {"volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]}
            },
            "redbox": {
                "authorizedKeysRef": {"name": "people-keys"},
                "trustedUserCaKeys": "ssh-ed25519 AAAA red-box",
            },
        }
    ),
)
BARE = LoginCell("l", "u", LoginSetSpec.model_validate(REF))
SETS = {
    "login": sshd_set(cell(USERS), LOGIN, "d1"),
    "login-homes": sshd_set(cell(HOMES), BARE, "d1"),
    "login-24.11": sshd_set(cell(release=SlurmRelease.R24_11), BARE, "d1"),
}
SERVICES = [
    ssh_service(cell(), "login", LOGIN.owner, {"spec": {"type": "LoadBalancer"}, "port": 2022}),
    logins_service(cell()),
]


@pytest.mark.parametrize("name", SETS)
def test_objects(name: str) -> None:
    check(SNAPSHOTS / f"{name}.yaml", yaml.safe_dump(SETS[name], sort_keys=False))


@pytest.mark.parametrize("made", SETS.values(), ids=SETS)
def test_no_group_takes_the_files_of_a_claim(made: dict[str, Any]) -> None:
    """By fsGroup the kubelet would give users' homes to that group, and let it write."""
    assert "fsGroup" not in made["spec"]["template"]["spec"]["securityContext"]


def test_services() -> None:
    check(SNAPSHOTS / "login-services.yaml", yaml.safe_dump(SERVICES, sort_keys=False))


@pytest.mark.parametrize("made", SETS.values(), ids=SETS)
def test_only_the_container_that_becomes_users_is_not_restricted(made: dict[str, Any]) -> None:
    pod = made["spec"]["template"]["spec"]
    assert beyond_plain("login", pod, places_of(pod)) == []
    assert {field.partition(".")[0] for field in beyond_restricted("login", pod)} == {"containers[login]"}
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)


def of_authorities(**ref: str) -> LoginSetSpec:
    return LoginSetSpec.model_validate(REF | {"redbox": {"trustedUserCaKeysRef": {"name": "red-box", **ref}}})


@pytest.mark.parametrize(("ref", "match"), [({"group": "hpc"}, "Match Group hpc"), ({}, "Match All")])
def test_authorities_of_a_config_map_are_trusted_for_a_group(ref: dict[str, str], match: str) -> None:
    """At the end, after each keyword that is for all; sshd reads the file at each login."""
    spec = of_authorities(**ref)
    lines = login_files(spec)["sshd_config"].splitlines()
    assert lines[-2:] == [match, "TrustedUserCAKeys /etc/redbox/user-ca/trusted_user_ca_keys"]
    pod = sshd_set(cell(), LoginCell("l", "u", spec), "d1")["spec"]["template"]["spec"]
    assert {"name": "user-ca", "configMap": {"name": "red-box"}} in pod["volumes"]
    mounted = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert mounted["user-ca"] == "/etc/redbox/user-ca"


def test_no_authority_lets_root_in() -> None:
    spec = LoginSetSpec.model_validate(
        {**of_authorities().model_dump(by_alias=True), "rootSshAuthorizedKeys": "ssh-ed25519 AAAA root"}
    )
    lines = login_files(spec)["sshd_config"].splitlines()
    root = lines.index("Match User root")
    assert "TrustedUserCAKeys none" in lines[root : lines.index("Match All")]


def test_known_hosts_name_the_service() -> None:
    line = known_hosts("l", "hpc", b"ssh-ed25519 AAAA\n")
    assert line == "l-login.hpc.svc,l-login.hpc.svc.cluster.local,l-login.hpc ssh-ed25519 AAAA\n"


def test_the_files_of_sshd() -> None:
    check(SNAPSHOTS / "login-files.yaml", yaml.safe_dump(login_files(LOGIN.spec), sort_keys=False))
    bare = login_files(LoginSetSpec.model_validate(REF))
    assert bare.keys() == {"sshd_config"}
    assert "PermitRootLogin no\n" in bare["sshd_config"]
