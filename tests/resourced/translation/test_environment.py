from __future__ import annotations

from typing import Any

import pytest

from redbox.runner.program.rules import pod_environment
from redbox_api.pod_parts import PodEnv
from redbox_clusters.slurm_cluster import PodsSpec
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.pod import TargetPartition, translate
from redbox_resourced.translation.references import PodReferences
from tests.resourced.translation.factories import container, pod, program, secret, translated


def variable(source: dict[str, Any], **references: Any) -> PodEnv:
    given = {
        "labels": {"app": "web"},
        "annotations": {"a/b": "costs $(A) or $5"},
    }
    env = [{"name": "A", "valueFrom": source}]
    found = program(
        pod(
            container(env=env, resources={"limits": {"memory": "1Gi", "cpu": "1500m"}}),
            metadata=given,
            serviceAccountName="robot",
        ),
        **references,
    )
    return found.containers[0].env[0]


def test_literal_values_are_as_given_so_that_the_runner_expands_them() -> None:
    env = [{"name": "A", "value": "x"}, {"name": "B", "value": "$(A) $$(A)"}, {"name": "C"}]
    assert translated(env=env).env == [
        PodEnv(name="A", value="x"),
        PodEnv(name="B", value="$(A) $$(A)"),
        PodEnv(name="C", value=""),
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "train"),
        ("metadata.namespace", "alice"),
        ("metadata.uid", "uid-1"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['a/b']", "costs $$(A) or $$5"),
        ("spec.serviceAccountName", "robot"),
    ],
)
def test_fields_are_resolved_and_never_expanded(path: str, value: str) -> None:
    assert variable({"fieldRef": {"fieldPath": path}}) == PodEnv(name="A", value=value)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("status.podIP", "podIP"),
        ("status.podIPs", "podIPs"),
        ("status.hostIP", "hostIP"),
        ("status.hostIPs", "hostIPs"),
        ("spec.nodeName", "nodeName"),
    ],
)
def test_what_only_the_node_can_say_is_left_to_the_runner(path: str, name: str) -> None:
    found = variable({"fieldRef": {"fieldPath": path}})
    assert (found.value, found.from_node) == (None, name)


@pytest.mark.parametrize("path", ["metadata.labels", "spec.hostname"])
def test_other_fields_are_refused(path: str) -> None:
    with pytest.raises(Unsupported, match=r"env\[A\]\.valueFrom\.fieldRef\.fieldPath"):
        variable({"fieldRef": {"fieldPath": path}})


@pytest.mark.parametrize(
    ("chosen", "value"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "1024"),
        ({"resource": "requests.memory", "divisor": "0"}, str(1 << 30)),
        ({"resource": "requests.ephemeral-storage"}, "0"),
        ({"resource": "limits.cpu", "containerName": "main"}, "2"),
    ],
)
def test_amounts_are_divided_and_rounded_up(chosen: dict[str, str], value: str) -> None:
    assert variable({"resourceFieldRef": chosen}).value == value


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        ({"resource": "limits.ephemeral-storage"}, "no limit of ephemeral-storage"),
        ({"resource": "limits.pods"}, r"resource: 'limits\.pods'"),
        ({"resource": "limits.cpu", "containerName": "other"}, "no container 'other'"),
        ({"resource": "limits.cpu", "divisor": "much"}, "divisor: 'much' is not a quantity"),
    ],
)
def test_amounts_that_are_not_there_are_refused(chosen: dict[str, str], field: str) -> None:
    with pytest.raises(Unsupported, match=field):
        variable({"resourceFieldRef": chosen})


@pytest.mark.parametrize(
    ("spec", "partition", "limits"),
    [
        ({}, TargetPartition("debug"), {"cpu": "1"}),
        ({}, TargetPartition("debug", None, 4000), {"cpu": "1", "memory": "4000Mi"}),
        (
            {"resources": {"limits": {"cpu": "3", "memory": "1Gi"}}},
            TargetPartition("debug"),
            {"cpu": "3", "memory": "1024Mi"},
        ),
    ],
)
def test_a_limit_that_is_not_set_is_the_pods_or_the_jobs(
    spec: dict[str, Any], partition: TargetPartition, limits: dict[str, str]
) -> None:
    divisors = {"cpu": "1", "memory": "1Mi"}
    env = [
        {
            "name": name,
            "valueFrom": {"resourceFieldRef": {"resource": f"limits.{name}", "divisor": divisors[name]}},
        }
        for name in limits
    ]
    request = translate(pod(container(env=env), **spec), PodReferences(), PodsSpec(), partition)
    assert request.pod is not None
    found = {each.name: each.value for each in request.pod.containers[0].env}
    assert found == {name: amount.removesuffix("Mi") for name, amount in limits.items()}


def test_values_of_secrets_and_config_maps_are_never_expanded() -> None:
    chosen = {"name": "s", "key": "k"}
    found = variable({"secretKeyRef": chosen}, secrets={"s": secret(k="p$(A)$$")})
    assert found.value == "p$$(A)$$$$"
    found = variable({"configMapKeyRef": chosen}, config_maps={"s": {"data": {"k": "v$"}}})
    assert found.value == "v$$"


def test_an_optional_value_that_does_not_exist_is_no_variable() -> None:
    chosen = {"name": "s", "key": "k", "optional": True}
    env = [{"name": "A", "valueFrom": {kind: chosen}} for kind in ("secretKeyRef", "configMapKeyRef")]
    assert translated(env=env).env == []


def test_a_required_value_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"env\[A\]\.valueFrom: s has no text with the key 'k'"):
        variable(
            {"configMapKeyRef": {"name": "s", "key": "k"}}, config_maps={"s": {"binaryData": {"k": "AA=="}}}
        )


def test_a_secret_that_is_no_text_is_refused_without_its_content() -> None:
    with pytest.raises(Unsupported, match=r"env\[A\]: its value is not UTF-8 text") as refusal:
        variable({"secretKeyRef": {"name": "s", "key": "k"}}, secrets={"s": {"data": {"k": "/w=="}}})
    assert "ff" not in str(refusal.value)


def test_a_value_beyond_what_linux_takes_is_refused_with_the_cure() -> None:
    with pytest.raises(Unsupported, match=r"env\[A\]: its value has 200000 bytes.* mount it as a file"):
        variable(
            {"configMapKeyRef": {"name": "s", "key": "k"}},
            config_maps={"s": {"data": {"k": "x" * 200_000}}},
        )


def test_all_values_of_an_object_come_before_the_others() -> None:
    sources = [
        {"configMapRef": {"name": "c"}},
        {"prefix": "S_", "secretRef": {"name": "s"}},
        {"secretRef": {"name": "missing", "optional": True}},
    ]
    found = translated(
        {
            "config_maps": {"c": {"data": {"B": "$b"}}},
            "secrets": {"s": secret(B="2")},
        },
        envFrom=sources,
        env=[{"name": "B", "value": "own"}],
    )
    assert [(each.name, each.value) for each in found.env] == [("B", "$$b"), ("S_B", "2"), ("B", "own")]


@pytest.mark.parametrize("value", ["a$b", "$(A)", "$$(A)", "$", "$$$", "$(", "a\n$(HOME)"])
def test_the_runner_gives_back_the_value_of_a_secret(value: str) -> None:
    found = variable({"secretKeyRef": {"name": "s", "key": "k"}}, secrets={"s": secret(k=value)})
    wire = found.model_dump(mode="json", by_alias=True)
    assert pod_environment([{"name": "HOME", "value": "/h"}, wire], {})["A"] == value


def test_names_that_no_shell_takes_are_names_of_variables() -> None:
    references = {"config_maps": {"c": {"data": {"spring.datasource.url": "x"}}}}
    source = [{"configMapRef": {"name": "c"}, "prefix": "p-"}]
    found = translated(references, envFrom=source, env=[{"name": "my.dot", "value": "y"}])
    assert [(each.name, each.value) for each in found.env] == [
        ("p-spring.datasource.url", "x"),
        ("my.dot", "y"),
    ]


@pytest.mark.parametrize("name", ["a=b", "a\nb", "é", "", "x" * 257])
def test_what_is_no_name_of_a_variable_is_refused(name: str) -> None:
    with pytest.raises(Unsupported, match="printable ASCII characters without =: rename it"):
        translated(env=[{"name": name, "value": "x"}])
