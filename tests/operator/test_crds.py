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
    for child in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        yield from nodes(child)


def test_schemas_are_structural() -> None:
    for kind in CRDS:
        for node in nodes(schema_of(kind)):
            assert "type" in node
            assert not {"$ref", "anyOf", "$defs", "title", "additionalProperties"} & node.keys()


def test_every_string_and_list_of_a_slurmjob_is_bounded() -> None:
    for node in nodes(schema_of("SlurmJob")):
        if node["type"] == "string":
            assert "maxLength" in node or "pattern" in node
        if node["type"] == "array":
            assert "maxItems" in node


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
