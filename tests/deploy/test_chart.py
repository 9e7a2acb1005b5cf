"""The chart as it is rendered: what is generated is fresh, wrong values are refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_bed.core.places import CHECKOUT
from redbox_hosting.api import names
from redbox_operator.companion_pods.users import CompanionUsers
from tests.deploy.chart_objects import CONTROLLERS, Objects, Render, of_kind

pytestmark = pytest.mark.timeout(1800)  # Helm is built first, once

CHART = CHECKOUT / "deploy" / "chart"


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
        ({"slurmClusters": {"hpc1": {"endpoint": "https://x", "caBundle": ""}}}, "audience"),
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
        ({"networkPolicy": {"companions": {"namespaces": ["alice"]}}}, "companions.redboxes is empty"),
        ({"operator": {"tolerations": [{"effect": "Never"}]}}, "/operator/tolerations/0/effect"),
        ({"operator": {"companionUsers": {"first": 2_000_000_000}}}, "lower first or count"),
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


def test_the_crds_of_an_earlier_release_are_upgraded_also_by_an_install(rendered: Render) -> None:
    """They outlive an uninstall, and Helm installs none that there is already."""
    hooks = [one for one in rendered() if one["metadata"]["name"] == "redbox-crds"]
    assert {one["kind"] for one in hooks} == {"Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    for one in hooks:
        assert one["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"


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


def test_every_pod_meets_the_restricted_level(rendered: Render) -> None:
    everything = yaml.safe_load((CHECKOUT / "tests/deploy/chart/everything.values.yaml").read_text())
    found = list(pods(rendered(**everything)))
    assert {name for name, _ in found} == {
        *(*CONTROLLERS, "redbox-hosting", "redbox-crds", "redbox-hosting-crds"),
        *("redbox-uninstall", "redbox-hosting-uninstall", "redbox-hpc2"),
    }
    for name, pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", name
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name


def test_no_two_programs_share_a_user_or_have_one_of_companions(rendered: Render) -> None:
    everything = yaml.safe_load((CHECKOUT / "tests/deploy/chart/everything.values.yaml").read_text())
    users = {name: pod["securityContext"] for name, pod in pods(rendered(**everything))}
    numbers = [context["runAsUser"] for context in users.values()]
    assert len(set(numbers)) == len(numbers), users
    assert all(context["runAsGroup"] == context["runAsUser"] for context in users.values())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())["operator"]["companionUsers"]
    assert defaults == {"first": CompanionUsers.first, "count": CompanionUsers.count}
    assert max(numbers) < defaults["first"]


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


def test_the_workers_policies_select_by_the_labels_that_the_operator_sets(rendered: Render) -> None:
    policies = {
        one["metadata"]["name"]: one["spec"]
        for one in of_kind(
            rendered(hosting={"enabled": True, "namespaces": ["hpc"]}), "ValidatingAdmissionPolicy"
        )
        if one["metadata"]["name"].startswith("redbox-worker")
    }
    selected = {
        name: spec["matchConstraints"]["objectSelector"]["matchLabels"] for name, spec in policies.items()
    }
    assert selected == {
        "redbox-workers": {names.LABEL_PROTECTED: "true"},
        "redbox-worker-namespaces": {names.LABEL_HOLDS_WORKERS: "true"},
    }
    for spec in policies.values():
        assert spec["failurePolicy"] == "Fail"
        assert names.ANNOTATION_FORCE_DELETE in spec["validations"][0]["expression"]
    assert not [
        one for one in of_kind(rendered(), "ValidatingAdmissionPolicy") if "worker" in str(one["metadata"])
    ]
