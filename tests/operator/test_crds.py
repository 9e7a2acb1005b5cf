"""The CRDs are such as the API server takes, and tell what a field means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redbox_operator.crds import all_crds
from redbox_operator.installation import OWN_TOKEN, RIGHTS, manifests

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


def test_the_operator_has_no_right_on_secrets_and_none_to_delete() -> None:
    for right in (*RIGHTS, *OWN_TOKEN):
        assert "secrets" not in right["resources"]
        assert not {"*", "delete", "impersonate", "escalate", "bind"} & {*right["verbs"], *right["resources"]}


def test_the_operator_may_ask_for_tokens_of_its_own_account_only() -> None:
    assert [right["resourceNames"] for right in OWN_TOKEN] == [["redbox-operator"]]


def test_the_manifests_are_in_an_order_that_can_be_applied() -> None:
    kinds = [made["kind"] for made in manifests("redbox-system", "operator:1", "companion:1")]
    assert kinds.index("Namespace") < kinds.index("ServiceAccount") < kinds.index("Deployment")
