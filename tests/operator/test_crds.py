"""The CRDs are such as the API server takes, and tell what a field means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redbox_operator.crds import all_crds

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in all_crds()}


def schema_of(kind: str) -> dict[str, Any]:
    (version,) = CRDS[kind]["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    children = [*schema.get("properties", {}).values()]
    children += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for child in children:
        yield from nodes(child)


def test_schemas_are_structural() -> None:
    for kind in CRDS:
        for node in nodes(schema_of(kind)):
            assert "type" in node
            assert not {"$ref", "anyOf", "$defs", "title", "propertyNames"} & node.keys()


def test_every_string_list_and_map_of_a_slurmjob_is_bounded() -> None:
    for node in nodes(schema_of("SlurmJob")):
        if node["type"] == "string":
            assert "maxLength" in node or "pattern" in node or "enum" in node
        if node["type"] == "array":
            assert "maxItems" in node
        if "additionalProperties" in node:
            assert "maxProperties" in node


def test_only_what_may_change_is_without_a_rule_that_it_may_not() -> None:
    schema = schema_of("SlurmJob")
    rules = " ".join(one["rule"] for one in schema["x-kubernetes-validations"])
    free = {field for field in schema["properties"] if f"self.?{field} == oldSelf.?{field}" not in rules}
    assert free == {"suspend", "hold", "ttlSecondsAfterFinished"}


def test_every_field_of_a_slurmjob_says_what_it_means() -> None:
    for name, field in schema_of("SlurmJob")["properties"].items():
        assert field.get("description"), name


def test_short_names_and_columns() -> None:
    assert CRDS["SlurmJob"]["spec"]["names"]["shortNames"] == ["sj"]
    assert CRDS["SlurmCluster"]["spec"]["names"]["shortNames"] == ["slc"]
    columns = [
        column["name"] for column in CRDS["SlurmJob"]["spec"]["versions"][0]["additionalPrinterColumns"]
    ]
    assert columns[:4] == ["Phase", "Job", "Cluster", "Partition"]
