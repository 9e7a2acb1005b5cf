"""The CRDs of hosted Slurm: what the API server takes, and what Slinky's users expect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from redbox_hosting.api.crds import hosting_crds

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in hosting_crds()}
PODS = {"slurmctld", "reconfigure", "logfile", "template", "service", "slurmd", "login", "initconf"}
PODS |= {"slurmrestd", "slurmdbd", "volumeClaimTemplates"}


def schema_of(kind: str, part: str = "spec") -> dict[str, Any]:
    (version,) = CRDS[kind]["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"][part]
    return schema


def nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    children = [*schema.get("properties", {}).values()]
    children += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for child in children:
        yield from nodes(child)


def own_fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All but those of Kubernetes' own objects, which Kubernetes describes."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}{name}", field
        if name not in PODS:
            yield from own_fields(field.get("items", field), f"{path}{name}.")


def messages(kind: str) -> str:
    return " | ".join(item["message"] for item in schema_of(kind)["x-kubernetes-validations"])


@pytest.mark.parametrize(
    ("kind", "short"),
    [
        ("Controller", ["slurmctld"]),
        ("NodeSet", ["nss", "slurmd"]),
        ("LoginSet", ["lss", "sackd"]),
        ("RestApi", ["slurmrestd"]),
        ("Accounting", ["slurmdbd"]),
        ("Token", ["jwt"]),
    ],
)
def test_kinds_have_slinkys_short_names_in_one_group(kind: str, short: list[str]) -> None:
    spec = CRDS[kind]["spec"]
    assert (spec["group"], spec["scope"], spec["names"]["shortNames"]) == (
        "slurm.redbox.dev",
        "Namespaced",
        short,
    )
    assert [version["name"] for version in spec["versions"]] == ["v1alpha1"]


@pytest.mark.parametrize("kind", CRDS)
def test_schemas_are_structural_and_bounded_in_depth(kind: str) -> None:
    for part in ("spec", "status"):
        for node in nodes(schema_of(kind, part)):
            assert ("type" in node) != (node.get("x-kubernetes-int-or-string") is True), node
            assert not {"$ref", "anyOf", "$defs", "title", "propertyNames"} & node.keys()
            assert "x-kubernetes-preserve-unknown-fields" not in node


@pytest.mark.parametrize("kind", CRDS)
def test_every_field_of_ours_is_described_and_bounded(kind: str) -> None:
    for path, field in own_fields(schema_of(kind)):
        assert field.get("description"), path
        if path.rpartition(".")[2] in PODS:
            continue
        if field.get("type") == "string":
            assert {"maxLength", "pattern", "enum"} & field.keys(), path
        if field.get("type") == "array":
            assert "maxItems" in field, path
        if "additionalProperties" in field:
            assert "maxProperties" in field, path


@pytest.mark.parametrize("kind", CRDS)
def test_a_crd_is_small_enough_for_the_api_server(kind: str) -> None:
    assert len(str(CRDS[kind])) < 400_000


def test_replicas_has_no_default_and_is_scaled() -> None:
    for kind in ("NodeSet", "LoginSet"):
        assert "default" not in schema_of(kind)["properties"]["replicas"]
        (version,) = CRDS[kind]["spec"]["versions"]
        assert version["subresources"]["scale"] == {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }


def test_columns_of_a_nodeset() -> None:
    (version,) = CRDS["NodeSet"]["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    always = [column["name"] for column in columns if not column.get("priority")]
    assert always == ["Desired", "Replicas", "Updated", "Ready", "Degraded", "Age"]
    wide = [column["name"] for column in columns if column.get("priority")]
    assert wide == ["Idle", "Allocated", "Down", "Drain", "Message"]


@pytest.mark.parametrize("kind", CRDS)
def test_the_columns_of_each_kind_say_whether_it_is_ready_and_whether_somebody_has_to_act(kind: str) -> None:
    (version,) = CRDS[kind]["spec"]["versions"]
    always = [column for column in version["additionalPrinterColumns"] if not column.get("priority")]
    assert {"Ready", "Degraded", "Age"} <= {column["name"] for column in always}


def test_a_column_is_one_value_of_the_status() -> None:
    for kind, crd in CRDS.items():
        (version,) = crd["spec"]["versions"]
        for column in version["additionalPrinterColumns"]:
            part, _, name = column["jsonPath"].lstrip(".").partition(".")
            if part == "status" and "[" not in name:
                assert schema_of(kind, "status")["properties"][name]["type"] in {"integer", "string"}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("Controller", ["clusterName", "slurmKeyRef", "jwtKeyRef", "persistence"]),
        ("NodeSet", ["controllerRef", "volumeClaimTemplates", "ordinalPadding"]),
        ("LoginSet", ["controllerRef"]),
        ("RestApi", ["controllerRef"]),
        ("Token", ["username"]),
    ],
)
def test_fields_that_must_not_change(kind: str, fields: list[str]) -> None:
    for field in fields:
        assert f"{field} is immutable" in messages(kind)


def test_a_slurm_that_runs_elsewhere_has_keys_of_its_own() -> None:
    assert "an external Controller needs slurmKeyRef and jwtKeyRef" in messages("Controller")


def test_a_pods_template_has_every_field_but_volumes_that_are_gone() -> None:
    spec = schema_of("NodeSet")["properties"]["template"]["properties"]["spec"]
    volume = spec["properties"]["volumes"]["items"]["properties"]
    assert {"hostPath", "emptyDir", "projected", "nfs"} <= volume.keys()
    assert "gitRepo" not in volume
    container = spec["properties"]["containers"]["items"]["properties"]
    limits = container["resources"]["properties"]["limits"]
    assert limits["additionalProperties"] == {"x-kubernetes-int-or-string": True}
    port = container["readinessProbe"]["properties"]["httpGet"]["properties"]["port"]
    assert port == {"x-kubernetes-int-or-string": True}


def test_a_service_cannot_take_the_traffic_of_other_addresses() -> None:
    service = schema_of("Controller")["properties"]["service"]["properties"]["spec"]["properties"]
    assert "loadBalancerIP" in service
    assert "externalIPs" not in service


def test_conditions_are_a_list_with_one_of_each_type() -> None:
    for kind in CRDS:
        conditions = schema_of(kind, "status")["properties"]["conditions"]
        assert conditions["x-kubernetes-list-map-keys"] == ["type"]
        assert "observedGeneration" in conditions["items"]["properties"]
