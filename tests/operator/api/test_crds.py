"""The CRDs are such as the API server takes, and tell what a field means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redbox_operator.api.crds import all_crds

CRDS = {crd["metadata"]["name"]: crd for crd in all_crds()}
SLURM_JOB, SLURM_CLUSTER = "slurmjobs.redbox.dev", "slurmclusters.redbox.dev"


def schema_of(name: str) -> dict[str, Any]:
    (version,) = CRDS[name]["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    children = [*schema.get("properties", {}).values()]
    children += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for child in children:
        yield from nodes(child)


def test_schemas_are_structural() -> None:
    for name in CRDS:
        for node in nodes(schema_of(name)):
            assert "type" in node or node == {"x-kubernetes-int-or-string": True}
            assert not {"$ref", "anyOf", "$defs", "title", "propertyNames"} & node.keys()


def test_what_is_written_as_an_option_of_slurms_is_refused_with_examples_and_not_with_a_pattern() -> None:
    resources = schema_of(SLURM_JOB)["properties"]["resources"]["properties"]
    for name in ("time", "memPerNode", "memPerCpu", "gpusPerNode", "gres"):
        (noted,) = resources[name]["x-kubernetes-validations"]
        assert "pattern" not in resources[name]
        assert "maxLength" in resources[name], "else the rule could cost too much"
        assert noted["message"].endswith(resources[name]["description"])


def test_every_string_list_and_map_of_a_slurmjob_is_bounded() -> None:
    for node in nodes(schema_of(SLURM_JOB)):
        if node.get("type") == "string":
            assert "maxLength" in node or "pattern" in node or "enum" in node
        if node.get("type") == "array":
            assert "maxItems" in node
        if "additionalProperties" in node:
            assert "maxProperties" in node


def test_how_deep_a_job_is_nested_is_bounded() -> None:
    """The API server stores ten thousand levels of unknown fields, and then cannot read them any more."""
    for name in CRDS:
        for node in nodes(schema_of(name)):
            assert "x-kubernetes-preserve-unknown-fields" not in node


def test_only_what_may_change_is_without_a_rule_that_it_may_not() -> None:
    schema = schema_of(SLURM_JOB)
    rules = " ".join(item["rule"] for item in schema["x-kubernetes-validations"])
    free = {field for field in schema["properties"] if f"self.{field} == oldSelf.{field})" not in rules}
    assert free == {"suspend", "hold", "ttlSecondsAfterFinished"}


def test_every_field_of_a_slurmjob_says_what_it_means() -> None:
    for name, field in schema_of(SLURM_JOB)["properties"].items():
        assert field.get("description"), name


def test_short_names_and_columns() -> None:
    assert CRDS[SLURM_JOB]["spec"]["names"]["shortNames"] == ["sj"]
    assert CRDS[SLURM_CLUSTER]["spec"]["names"]["shortNames"] == ["slc"]
    columns = [
        column["name"] for column in CRDS[SLURM_JOB]["spec"]["versions"][0]["additionalPrinterColumns"]
    ]
    assert columns[:5] == ["Phase", "Job", "Cluster", "Partition", "Nodes"]


def test_a_column_is_one_value_of_the_schema() -> None:
    """Of a list, `kubectl get` would show JSON."""
    (version,) = CRDS[SLURM_JOB]["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    paths = [column["jsonPath"] for column in version["additionalPrinterColumns"]]
    shown = [path.removeprefix(".status.") for path in paths if path.startswith(".status.")]
    assert {status[name]["type"] for name in shown} <= {"string", "integer"}


def test_the_kinds_of_old_operators_are_there() -> None:
    old = {"slurmjobs.wlm.sylabs.io", "wlmjobs.wlm.sylabs.io", "slurmjobs.slurm.sylabs.io"}
    assert old < CRDS.keys()
    assert all(CRDS[name]["spec"]["versions"][0]["name"] == "v1alpha1" for name in old)


def test_an_old_kind_does_not_take_the_short_name_of_ours() -> None:
    assert [name for name, crd in CRDS.items() if "sj" in crd["spec"]["names"]["shortNames"]] == [SLURM_JOB]


def test_maps_are_written_whole() -> None:
    maps = [
        node
        for crd in CRDS.values()
        for version in crd["spec"]["versions"]
        for node in nodes(version["schema"]["openAPIV3Schema"])
        if "additionalProperties" in node
    ]
    assert maps
    assert all(node["x-kubernetes-map-type"] == "atomic" for node in maps)


def test_every_field_of_a_slurmcluster_is_described_and_bounded() -> None:
    schema = schema_of(SLURM_CLUSTER)
    pods = schema["properties"]["pods"]
    for fields in (
        schema["properties"],
        pods["properties"],
        pods["properties"]["mounts"]["items"]["properties"],
    ):
        for name, field in fields.items():
            assert field.get("description"), name
    for node in nodes(pods):
        if node.get("type") == "string":
            assert "maxLength" in node or "enum" in node
        if node.get("type") == "array":
            assert "maxItems" in node


def test_pods_are_off_by_default() -> None:
    assert schema_of(SLURM_CLUSTER)["properties"]["pods"]["properties"]["enabled"]["default"] is False
