"""The chart of a whole cluster: no key in it, the same at each rendering, and bad values by their name."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from redbox.settings import load_settings
from redbox_bed.core.places import CHECKOUT
from redbox_clusters.slurm_cluster import SlurmClusterSpec
from redbox_hosting.api.controller import ControllerSpec
from redbox_hosting.api.daemons import AccountingSpec, LoginSetSpec
from redbox_hosting.api.nodeset import NodeSetSpec
from redbox_hosting.attach import CA, AttachedRedbox
from redbox_hosting.build.pods.pod_security import beyond_plain, places_of
from redbox_hosting.build.users.unix_lines import GROUP, PASSWD
from tests.hosting.build.pod_security import beyond_restricted

pytestmark = pytest.mark.timeout(1800)  # Helm is built first, once

CHART = CHECKOUT / "deploy/chart-slurm"
SPECS: dict[str, type[BaseModel]] = {
    "Controller": ControllerSpec,
    "NodeSet": NodeSetSpec,
    "LoginSet": LoginSetSpec,
    "Accounting": AccountingSpec,
}
ALICE = {"name": "alice", "uid": 2001, "namespaces": ["alice"]}
Values = dict[str, Any]
Objects = dict[tuple[str, str], dict[str, Any]]


def template(
    helm: Path, values: Values, release: str = "slurm", *options: str
) -> subprocess.CompletedProcess[str]:
    command = [str(helm), "template", release, str(CHART), "--namespace", "hpc", "--values=-", *options]
    given = json.dumps({"images": {"registry": "example.org"}, **values})
    return subprocess.run(command, input=given, check=False, capture_output=True, text=True, timeout=60)


@pytest.fixture
def objects(helm: Path) -> Callable[..., Objects]:
    def render(*options: str, **values: Any) -> Objects:
        ended = template(helm, values, "slurm", *options)
        assert ended.returncode == 0, ended.stderr
        bodies = [body for body in yaml.safe_load_all(ended.stdout) if body]
        return {(body["kind"], body["metadata"]["name"]): body for body in bodies}

    return render


def test_pull_secrets_reach_the_pods_of_slurm_beside_what_their_values_say(
    objects: Callable[..., Objects],
) -> None:
    secrets = [{"name": "registry"}]
    login = {"template": {"spec": {"nodeSelector": {"a": "b"}}}}
    found = objects("--no-hooks", images={"registry": "example.org", "pullSecrets": secrets}, login=login)
    specs = {kind: body["spec"]["template"]["spec"] for (kind, _), body in found.items() if kind in SPECS}
    assert {kind: spec["imagePullSecrets"] for kind, spec in specs.items()} == dict.fromkeys(SPECS, secrets)
    assert specs["LoginSet"]["nodeSelector"] == {"a": "b"}


def test_by_its_defaults_it_is_a_whole_cluster(objects: Callable[..., Objects]) -> None:
    found = objects("--no-hooks")
    assert {kind for kind, _ in found} >= {*SPECS, "SlurmCluster", "StatefulSet", "Job"}
    for (kind, _), body in found.items():
        if kind in SPECS:
            SPECS[kind].model_validate(body["spec"])
    controller = ControllerSpec.model_validate(found["Controller", "slurm"]["spec"])
    assert controller.redbox.homes is not None
    assert ("PersistentVolumeClaim", controller.redbox.homes.claim_name) in found
    assert controller.accounting_ref is not None
    assert ("Accounting", controller.accounting_ref.name) in found


def test_it_renders_no_secret_and_the_same_each_time(helm: Path) -> None:
    first, second = (template(helm, {}).stdout for _ in range(2))
    assert first == second
    assert "Secret" not in {body["kind"] for body in yaml.safe_load_all(first) if body}


def test_its_red_box_has_valid_settings_and_maps_namespaces_to_users(
    objects: Callable[..., Objects], tmp_path: Path
) -> None:
    users = [ALICE, {"name": "bob", "uid": 2002}]
    found = objects(users=users, redbox={"rules": [{"namespaces": ["physics"], "user": "bob"}]})
    files = found["ConfigMap", "slurm-redbox-settings"]["data"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    settings = yaml.safe_load(files["redbox.yaml"])
    settings["mapping"]["file"] = str(tmp_path / "rules.yaml")
    (tmp_path / "redbox.yaml").write_text(yaml.safe_dump(settings))
    loaded = load_settings(tmp_path / "redbox.yaml")
    assert loaded.agents.ssh is not None
    assert loaded.agents.ssh.host == "slurm-login.hpc.svc"
    assert found["SlurmCluster", "slurm"]["spec"]["audience"] == loaded.callers.clusters[0].audience
    rules = yaml.safe_load(files["rules.yaml"])["rules"]
    assert [(rule["namespaces"], rule["user"]) for rule in rules if "user" in rule] == [
        (["alice"], "alice"),
        (["physics"], "bob"),
    ]
    people = found["ConfigMap", "slurm-people"]["data"]
    assert people[PASSWD].splitlines()[0] == "alice:x:2001:2001::/home/alice:/bin/bash"
    assert people[GROUP].splitlines()[-1] == "redbox-users:x:64101:redbox-watch,alice"


def test_two_releases_have_audiences_of_their_own(helm: Path) -> None:
    audiences = set()
    for release in ("slurm", "other"):
        bodies = yaml.safe_load_all(template(helm, {"redbox": {"slurmCluster": "slurm"}}, release).stdout)
        audiences |= {body["spec"]["audience"] for body in bodies if body and body["kind"] == "SlurmCluster"}
    assert len(audiences) == 2


def test_the_login_pods_trust_the_authority_that_the_job_makes_for_red_boxs_users_alone(
    objects: Callable[..., Objects],
) -> None:
    login = LoginSetSpec.model_validate(objects()["LoginSet", "slurm"]["spec"])
    trusted = login.redbox.trusted_user_ca_keys_ref
    assert trusted is not None
    assert (trusted.name, trusted.group) == ("slurm-redbox", "redbox-users")


def test_the_certificate_is_for_the_endpoint(objects: Callable[..., Objects]) -> None:
    endpoint = objects()["SlurmCluster", "slurm"]["spec"]["endpoint"]
    host = endpoint.removeprefix("https://").removesuffix(":8443")
    assert host in AttachedRedbox("slurm-redbox", "hpc").hosts


def test_the_job_of_keys_has_rights_to_one_secret_and_one_config_map_alone(
    objects: Callable[..., Objects],
) -> None:
    """In particular none to the SlurmCluster, which decides where everybody's tokens are sent."""
    found = objects("--no-hooks")
    rules = found["Role", "slurm-redbox-keys"]["rules"]
    beyond = [rule for rule in rules if set(rule["verbs"]) - {"create"}]
    assert [(rule["resources"], rule["verbs"], rule["resourceNames"]) for rule in beyond] == [
        (["secrets", "configmaps"], ["get", "patch"], ["slurm-redbox"])
    ]
    assert {kind for kind, _ in found if kind.startswith("ClusterRole")} == {"ClusterRoleBinding"}
    (binding,) = (body for (kind, _), body in found.items() if kind == "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == "system:service-account-issuer-discovery"


def test_the_ca_is_copied_by_red_boxs_operator_which_may_read_it(objects: Callable[..., Objects]) -> None:
    found = objects(operator={"namespace": "boxes"})
    cluster = SlurmClusterSpec.model_validate(found["SlurmCluster", "slurm"]["spec"])
    source = cluster.ca_bundle_from
    assert source is not None
    assert (source.namespace, source.name, source.key) == ("hpc", "slurm-redbox", CA)
    (rule,) = found["Role", "slurm-redbox-ca"]["rules"]
    assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == (
        ["configmaps"],
        [source.name],
        ["get"],
    )
    assert found["RoleBinding", "slurm-redbox-ca"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "redbox-operator", "namespace": "boxes"}
    ]


def test_what_makes_the_keys_runs_again_each_week_and_renews_the_certificate(
    objects: Callable[..., Objects],
) -> None:
    found = objects()
    (job,) = (body["spec"] for (kind, name), body in found.items() if kind == "Job" and "keys" in name)
    again = found["CronJob", "slurm-redbox-keys"]["spec"]
    assert again["jobTemplate"]["spec"] == job
    assert again["schedule"].split()[-1] == "1"


def test_every_pod_of_its_own_is_restricted(objects: Callable[..., Objects]) -> None:
    pods = [
        body["spec"]["template"]["spec"]
        for (kind, _), body in objects().items()
        if kind in {"Job", "StatefulSet"}
    ]
    assert len(pods) == 3
    for pod in pods:
        assert beyond_plain("redbox", pod, places_of(pod)) == []
        assert beyond_restricted("redbox", pod) == []


@pytest.mark.parametrize("fate", ["Refuse", "Drain", "Abandon", "KeepRunning"])
def test_an_uninstall_keeps_what_it_is_told_to(objects: Callable[..., Objects], fate: str) -> None:
    found = objects(uninstall={"workers": fate})
    kept = {
        kind
        for (kind, _), body in found.items()
        if body["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }
    slurm = {*SPECS, "ConfigMap"} if fate == "KeepRunning" else set()
    assert kept == {"PersistentVolumeClaim", *slurm}
    hook = found["Job", "slurm-uninstall"]
    assert hook["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    (container,) = hook["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["end-workers", "slurm", "--workers", fate]


def test_another_image_makes_another_job(objects: Callable[..., Objects]) -> None:
    """A Job cannot be changed."""
    jobs = [
        {name for kind, name in objects("--no-hooks", images=images) if kind == "Job"}
        for images in ({"registry": "example.org", "tag": tag} for tag in ("1", "1", "2"))
    ]
    assert jobs[0] == jobs[1] != jobs[2]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"images": {"registry": ""}}, "images.registry is empty: name the registry"),
        ({"users": [{"name": "alice", "uid": 499}]}, "/users/0/uid"),
        ({"users": [{"name": "Alice Liddell", "uid": 2001}]}, "/users/0/name"),
        ({"users": [{"name": "root", "uid": 2001}]}, "users: root is an account of the system"),
        ({"users": [{"name": "redbox-watch", "uid": 2001}]}, "users: redbox-watch is there twice"),
        ({"users": [ALICE, {"name": "bob", "uid": 2001}]}, "users: bob has the uid 2001 of another user"),
        ({"users": [ALICE | {"uid": 600}]}, "red-box acts for uids of 1000 and more, and alice has 600"),
        (
            {"users": [ALICE, {"name": "bob", "uid": 2002, "namespaces": ["alice"]}]},
            "the namespace alice is that of alice and of bob",
        ),
        ({"groups": [{"name": "alice", "gid": 3000}]}, "groups: alice is a group of the chart's already"),
        ({"groups": [{"name": "physics", "gid": 2001}]}, "groups: physics has the gid 2001 of another group"),
        ({"groups": [{"name": "physics", "gid": 3000, "members": ["eve"]}]}, "groups: eve is no user"),
        ({"login": {"enabled": False}}, "red-box reaches Slurm by the login pods"),
        ({"nodeSets": {"cpu-1": {"replicas": 1}}}, "nodeSets: cpu-1 ends as a pod's name does"),
        ({"nodeSets": {"c" * 41: {"replicas": 1}}}, f"nodeSets: {'c' * 41} begins the names of pods"),
        ({"homes": {"accessMode": "ReadWriteOncePod"}}, "/homes/accessMode"),
        ({"uninstall": {"workers": "delete"}}, "/uninstall/workers"),
        ({"user": []}, "'user' not allowed"),
    ],
)
def test_a_bad_value_is_refused_in_a_sentence(helm: Path, values: Values, said: str) -> None:
    ended = template(helm, values)
    assert ended.returncode != 0
    assert said in ended.stderr


@pytest.mark.parametrize(("release", "allowed"), [("a" * 40, True), ("a" * 41, False), ("slurm.hpc", False)])
def test_a_release_has_a_name_that_its_services_can_have(helm: Path, release: str, *, allowed: bool) -> None:
    ended = template(helm, {}, release)
    assert (ended.returncode == 0) is allowed
    assert allowed or f"the release's name {release} begins the names of Services" in ended.stderr
