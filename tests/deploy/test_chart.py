"""The chart as it is rendered: what is generated is fresh, wrong values are refused, rights stay few."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_bed.core.places import CHECKOUT
from redbox_operator.api.crds import all_crds
from redbox_resourced.kubelet.serving_certificate import USER

pytestmark = pytest.mark.timeout(1800)  # Helm is built first, once

CHART = CHECKOUT / "deploy" / "chart"
Objects = list[dict[str, Any]]
Render = Callable[..., Objects]
CONTROLLERS = ("redbox-operator", "redbox-resourced")
USER_ROLES = {"redbox-editor", "redbox-viewer", "redbox-cluster-viewer"}


def of_kind(objects: Objects, *kinds: str) -> Objects:
    return [one for one in objects if one["kind"] in kinds]


def is_hook(one: Mapping[str, Any]) -> bool:
    return "helm.sh/hook" in one["metadata"].get("annotations", {})


def rules_of(objects: Objects, account: str) -> Iterator[dict[str, Any]]:
    """Every rule that is bound to a service account, wherever."""
    bound = {
        (binding["roleRef"]["kind"], binding["roleRef"]["name"], binding["metadata"].get("namespace", ""))
        for binding in of_kind(objects, "ClusterRoleBinding", "RoleBinding")
        if any(subject["name"] == account for subject in binding["subjects"])
    }
    for role in of_kind(objects, "ClusterRole", "Role"):
        if (role["kind"], role["metadata"]["name"], role["metadata"].get("namespace", "")) in bound:
            yield from role["rules"]


def pods(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in of_kind(objects, "Deployment", "Job", "StatefulSet"):
        yield one["metadata"]["name"], one["spec"]["template"]["spec"]


def test_what_is_generated_is_as_it_would_be_made_now(helm: Path) -> None:
    command = [sys.executable, str(CHECKOUT / "deploy/generate.py"), "--check"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, ""), f"{helm}: run `make generate`"


def test_the_readmes_last_command_deletes_every_kind() -> None:
    _, _, last = (CHART / "README.md").read_text().rpartition("kubectl delete crd ")
    kinds = yaml.safe_load_all((CHART / "crds/redbox.yaml").read_text())
    assert sorted(last.partition("```")[0].replace("\\\n", "").split()) == sorted(
        one["metadata"]["name"] for one in kinds
    )


@pytest.mark.parametrize("example", ["everything", "limited"])
def test_helm_has_nothing_to_say_against_the_chart(helm: Path, example: str) -> None:
    values = CHECKOUT / f"tests/deploy/chart/{example}.values.yaml"
    ended = subprocess.run(
        [str(helm), "lint", str(CHART), "--strict", "--values", str(values)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"operator": {"replica": 2}}, "replica"),
        ({"operator": {"replicas": "two"}}, "/operator/replicas"),
        ({"uninstall": {"jobs": "Kill"}}, "/uninstall/jobs"),
        ({"watchNamespaces": ["Not_A_Name"]}, "/watchNamespaces/0"),
        ({"slurmClusters": {"hpc1": {"endpoint": "http://x", "audience": "redbox.dev/x"}}}, "caBundle"),
        (
            {"slurmClusters": {"hpc1": {"endpoint": "http://x", "audience": "a", "caBundle": ""}}},
            "/slurmClusters/hpc1/endpoint",
        ),
        (
            {
                "slurmClusters": {
                    "hpc1": {
                        "endpoint": "https://x",
                        "audience": "redbox.dev/x",
                        "caBundle": "",
                        "deliver": "Virtual",
                    }
                }
            },
            "deliver",
        ),
        ({"slurmClusters": {"HPC_1": {}}}, "HPC_1"),
        ({"images": {"registry": "example.org", "pullPolicy": "Sometimes"}}, "/images/pullPolicy"),
        ({"images": {"registry": ""}}, "images.registry"),
        ({"images": {"registry": "https://example.org/hpc"}}, "/images/registry"),
        ({"images": {"registry": "example.org", "tag": ".1"}}, "/images/tag"),
        ({"operator": {"resources": {"limits": {"memory": "lots"}}}}, "/operator/resources/limits/memory"),
        ({"resourced": {"resources": {"limit": {"memory": "1Gi"}}}}, "limit"),
        ({"resourced": {"enabled": True}, "watchNamespaces": ["a"]}, "watchNamespaces"),
        ({"resourced": {"pods": {"enabled": True}}}, "needs resourced.enabled"),
        ({"resourced": {"enabled": True, "pods": {"enabled": "yes"}}}, "/resourced/pods/enabled"),
        ({"resourced": {"enabled": True, "pods": {"namespaces": ["*"]}}}, "/resourced/pods/namespaces/0"),
        (
            {"resourced": {"enabled": True, "pods": {"enabled": True}}, "admission": {"tokens": False}},
            "needs admission.tokens",
        ),
        (
            {
                "resourced": {
                    "enabled": True,
                    "pods": {"enabled": True, "apiTokenNamespaces": ["redbox-system"]},
                }
            },
            "apiTokenNamespaces has redbox-system",
        ),
        (
            {"resourced": {"enabled": True, "pods": {"enabled": True, "namespaces": ["redbox-system"]}}},
            "resourced.pods.namespaces has redbox-system",
        ),
        ({"networkPolicy": {"metricsFrom": [{"nsSelector": {}}]}}, "/networkPolicy/metricsFrom/0"),
        ({"operator": {"tolerations": [{"effect": "Never"}]}}, "/operator/tolerations/0/effect"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(
    refused: Callable[[Mapping[str, Any]], str], values: dict[str, Any], named: str
) -> None:
    said = refused({"images": {"registry": "example.org"}, **values})
    assert named in said


def test_every_value_has_a_default_and_a_meaning() -> None:
    table = (CHART / "README.md").read_text()

    def names(values: object, name: str = "") -> Iterator[str]:
        if isinstance(values, dict) and values and f"| `{name}` |" not in table:
            for key, value in values.items():
                yield from names(value, f"{name}.{key}" if name else key)
        else:
            yield name

    for name in names(yaml.safe_load((CHART / "values.yaml").read_text())):
        assert f"| `{name}` |" in table


def test_the_hook_may_change_every_kind_of_ours_and_no_other(rendered: Render) -> None:
    (changed,) = [rule for rule in rules_of(rendered(), "redbox-crds") if "patch" in rule["verbs"]]
    assert sorted(changed["resourceNames"]) == sorted(crd["metadata"]["name"] for crd in all_crds())


def test_the_crds_of_an_earlier_release_are_upgraded_also_by_an_install(rendered: Render) -> None:
    """They outlive an uninstall, and Helm installs none that there is already."""
    hooks = [one for one in rendered() if one["metadata"]["name"] == "redbox-crds"]
    assert {one["kind"] for one in hooks} == {"Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    for one in hooks:
        assert one["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"


@pytest.mark.parametrize("account", [*CONTROLLERS, "redbox-crds", "redbox-uninstall"])
def test_no_account_reads_secrets_runs_commands_or_raises_itself(rendered: Render, account: str) -> None:
    rules = list(rules_of(rendered(resourced={"enabled": True}), account))
    assert rules
    for rule in rules:
        assert not {"secrets", "pods/exec", "roles", "clusterroles", "*"} & {*rule["resources"]}
        assert not {"escalate", "bind", "approve", "*"} & {*rule["verbs"]}
        if "impersonate" in rule["verbs"]:
            assert rule["resourceNames"] in ([USER], ["system:nodes"])


def test_the_operator_may_do_only_what_it_does(rendered: Render) -> None:
    allowed: dict[str, set[str]] = {}
    for rule in rules_of(rendered(), "redbox-operator"):
        for resource in rule["resources"]:
            allowed.setdefault(resource, set()).update(rule["verbs"])
    jobs = {"get", "list", "watch", "patch", "delete"}
    assert allowed == {
        "slurmjobs": jobs,
        "wlmjobs": jobs,
        "slurmjobs/status": {"patch"},
        "wlmjobs/status": {"patch"},
        "slurmjobs/finalizers": {"update"},
        "wlmjobs/finalizers": {"update"},
        "slurmclusters": {"get", "list", "watch", "patch"},
        "slurmclusters/status": {"patch"},
        "slurmendpoints": {"get", "list", "watch"},
        "slurmendpoints/status": {"patch"},
        "pods": {"get", "list", "watch", "create", "delete"},
        "configmaps": {"get", "create", "delete"},
        "events": {"create"},
        "nodes": {"list"},
        "customresourcedefinitions": {"list", "watch"},
        "leases": {"create", "get", "update"},
        "serviceaccounts/token": {"create"},
    }


def test_resourced_writes_only_what_it_serves(rendered: Render) -> None:
    written: dict[str, set[str]] = {}
    for rule in rules_of(rendered(resourced={"enabled": True}), "redbox-resourced"):
        for resource in rule["resources"]:
            written.setdefault(resource, set()).update({*rule["verbs"]} - {"get", "list", "watch"})
    assert {resource: verbs for resource, verbs in written.items() if verbs} == {
        "nodes": {"create", "patch", "delete"},
        "nodes/status": {"patch"},
        "pods": {"delete"},
        "pods/status": {"patch"},
        "leases": {"create", "update", "patch", "delete"},
        "events": {"create"},
        "serviceaccounts/token": {"create"},
        "subjectaccessreviews": {"create"},
        "users": {"impersonate"},
        "groups": {"impersonate"},
    }


def test_pods_add_these_rights_and_without_them_there_are_none(rendered: Render) -> None:
    off, on = (
        rendered(resourced={"enabled": True, "pods": {"enabled": enabled, "namespaces": ["alice", "bob"]}})
        for enabled in (False, True)
    )
    assert off == rendered(resourced={"enabled": True})
    before, after = (list(rules_of(objects, "redbox-resourced")) for objects in (off, on))
    assert all(rule in after for rule in before)
    added: dict[str, set[str]] = {}
    for rule in after:
        if rule not in before:
            for resource in rule["resources"]:
                added.setdefault(resource, set()).update(rule["verbs"])
    assert added == {
        "pods": {"get", "patch"},
        "persistentvolumeclaims": {"get", "list", "watch"},
        "persistentvolumes": {"get", "list", "watch", "create", "patch", "delete"},
        "storageclasses": {"list", "watch"},
        "slurmclusters/status": {"patch"},
        "secrets": {"get"},
        "configmaps": {"get"},
    }
    for account in ("redbox-operator", "redbox-crds", "redbox-uninstall"):
        assert list(rules_of(on, account)) == list(rules_of(off, account))


def test_an_uninstall_lifts_finalizers_of_volumes_also_where_pods_are_off_by_now(rendered: Render) -> None:
    for values in ({}, {"resourced": {"enabled": True}}):
        rules = rules_of(rendered(**values), "redbox-uninstall")
        (lifting,) = [rule for rule in rules if rule["resources"] == ["persistentvolumes"]]
        assert lifting["verbs"] == ["get", "list", "patch"]
    limited = rules_of(rendered(watchNamespaces=["alice"]), "redbox-uninstall")
    assert not [rule for rule in limited if "persistentvolumes" in rule["resources"]]


def test_secrets_are_read_in_the_listed_namespaces_only(rendered: Render) -> None:
    pods_of = {"enabled": True, "namespaces": ["alice", "bob"]}
    objects = rendered(resourced={"enabled": True, "pods": pods_of})
    reading = [
        (role["kind"], role["metadata"].get("namespace"), tuple(rule["verbs"]))
        for role in of_kind(objects, "ClusterRole", "Role")
        for rule in role["rules"]
        if "secrets" in rule["resources"]
    ]
    assert reading == [("Role", "alice", ("get",)), ("Role", "bob", ("get",))]
    without = rendered(resourced={"enabled": True, "pods": {"enabled": True}})
    assert not any("secrets" in rule["resources"] for rule in rules_of(without, "redbox-resourced"))


def test_every_wide_right_for_pods_has_a_policy_that_denies(rendered: Render) -> None:
    objects = rendered(resourced={"enabled": True, "pods": {"enabled": True}})
    bound = {
        binding["spec"]["policyName"]
        for binding in of_kind(objects, "ValidatingAdmissionPolicyBinding")
        if binding["spec"]["validationActions"] == ["Deny"] and "matchResources" not in binding["spec"]
    }
    covered = {
        resource
        for policy in of_kind(objects, "ValidatingAdmissionPolicy")
        if policy["metadata"]["name"] in bound and policy["spec"]["failurePolicy"] == "Fail"
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }
    assert {"pods", "persistentvolumes", "serviceaccounts/token", "nodes", "leases"} <= covered


def test_volumes_are_of_the_driver_that_resourced_names(rendered: Render) -> None:
    objects = rendered(resourced={"enabled": True, "pods": {"enabled": True}})
    (storage_class,) = of_kind(objects, "StorageClass")
    (driver,) = of_kind(objects, "CSIDriver")
    assert storage_class["provisioner"] == "redbox.dev/directory"
    assert driver["metadata"]["name"] == "directory.redbox.dev"
    assert driver["spec"]["attachRequired"] is False
    assert not of_kind(rendered(resourced={"enabled": True}), "StorageClass", "CSIDriver")


def test_only_listed_namespaces_are_in_the_policy_of_tokens(rendered: Render) -> None:
    def validations(**pods_of: object) -> str:
        objects = rendered(resourced={"enabled": True, "pods": pods_of})
        (policy,) = [
            one
            for one in of_kind(objects, "ValidatingAdmissionPolicy")
            if one["metadata"]["name"] == "redbox-tokens"
        ]
        return str(policy["spec"])

    assert "request.namespace in ['alice']" in validations(enabled=True, apiTokenNamespaces=["alice"])
    assert "expirationSeconds <= 604800" in validations(enabled=True, apiTokenNamespaces=["alice"])
    without = validations(enabled=True)
    assert "request.namespace in" not in without
    assert "604800" not in without
    assert validations(enabled=False, apiTokenNamespaces=["alice"]) == without


def test_the_operator_asks_for_tokens_of_its_own_account_only(rendered: Render) -> None:
    rules = rules_of(rendered(), "redbox-operator")
    named = [rule.get("resourceNames") for rule in rules if "serviceaccounts/token" in rule["resources"]]
    assert named == [["redbox-operator"]]


def test_without_the_policy_resourced_asks_for_tokens_of_its_own_account_only(rendered: Render) -> None:
    objects = rendered(resourced={"enabled": True}, admission={"tokens": False})
    rules = rules_of(objects, "redbox-resourced")
    named = [rule.get("resourceNames") for rule in rules if "serviceaccounts/token" in rule["resources"]]
    assert named == [["redbox-resourced"]]


def test_limited_to_namespaces_nothing_of_others_can_be_read_or_written(rendered: Render) -> None:
    objects = rendered(watchNamespaces=["alice", "bob"])
    everywhere = {
        resource
        for role in of_kind(objects, "ClusterRole")
        if not is_hook(role) and role["metadata"]["name"] not in USER_ROLES
        for rule in role["rules"]
        for resource in rule["resources"]
    }
    assert everywhere == {"slurmclusters", "slurmclusters/status"}
    roles = [one for one in of_kind(objects, "Role") if one["metadata"]["namespace"] in {"alice", "bob"}]
    assert {role["metadata"]["namespace"] for role in roles} == {"alice", "bob"}


def test_limited_to_namespaces_an_uninstall_touches_no_node(rendered: Render) -> None:
    rules = rules_of(rendered(watchNamespaces=["alice"]), "redbox-uninstall")
    assert not {"nodes", "nodes/status"} & {one for rule in rules for one in rule["resources"]}
    assert "kube-node-lease" not in {
        one["metadata"].get("namespace") for one in of_kind(rendered(watchNamespaces=["alice"]), "Role")
    }
    assert "nodes" in {one for rule in rules_of(rendered(), "redbox-uninstall") for one in rule["resources"]}


def test_users_roles_never_hold_status_or_finalizers_and_view_gets_nothing(rendered: Render) -> None:
    users = [one for one in of_kind(rendered(), "ClusterRole") if one["metadata"]["name"] in USER_ROLES]
    assert len(users) == len(USER_ROLES)
    for role in users:
        assert not any("/" in resource for rule in role["rules"] for resource in rule["resources"])
        labels = role["metadata"]["labels"]
        assert "rbac.authorization.k8s.io/aggregate-to-view" not in labels
    editor = next(one for one in users if one["metadata"]["name"] == "redbox-editor")
    assert editor["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"


def test_every_pod_meets_the_restricted_level(rendered: Render) -> None:
    everything = yaml.safe_load((CHECKOUT / "tests/deploy/chart/everything.values.yaml").read_text())
    found = list(pods(rendered(**everything)))
    assert {name for name, _ in found} == {*CONTROLLERS, "redbox-crds", "redbox-uninstall", "redbox-hpc2"}
    for name, pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", name
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name


def test_a_single_controller_has_no_budget_that_would_stop_a_drain(rendered: Render) -> None:
    assert not of_kind(rendered(), "PodDisruptionBudget")
    (budget,) = of_kind(rendered(operator={"replicas": 2}), "PodDisruptionBudget")
    assert budget["spec"]["minAvailable"] == 1


def test_alerts_say_what_to_do(rendered: Render) -> None:
    objects = rendered(resourced={"enabled": True}, monitoring={"prometheusRule": True})
    (rule,) = of_kind(objects, "PrometheusRule")
    for alert in rule["spec"]["groups"][0]["rules"]:
        assert alert["annotations"]["summary"], alert["alert"]
        assert alert["annotations"]["description"], alert["alert"]


def test_nothing_of_the_prometheus_operator_is_there_by_default(rendered: Render) -> None:
    assert not of_kind(rendered(), "PodMonitor", "PrometheusRule")


@pytest.mark.parametrize("namespace", ["redbox-system", "kube-system", "default"])
@pytest.mark.parametrize("example", ["everything", "limited"])
def test_no_two_objects_have_one_name(helm: Path, example: str, namespace: str) -> None:
    """Helm installs the first of them, and fails at the second."""
    values = str(CHECKOUT / f"tests/deploy/chart/{example}.values.yaml")
    command = [str(helm), "template", "red-box", str(CHART), "--namespace", namespace, "--values", values]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    names = [
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
        for one in yaml.load_all(ended.stdout, yaml.CSafeLoader)
        if one
    ]
    assert [name for name in set(names) if names.count(name) > 1] == []
