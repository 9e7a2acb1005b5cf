"""Fields that hosted Slurm does not have, in manifests of Slinky's: each is named."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kubectl_slurm.slinky.conversion import convert
from kubectl_slurm.slinky.documents import ManifestDocument
from kubectl_slurm.slinky.known_fields import FIELDS
from tests.cli.test_convert import LEAST, MODELS, converted
from tests.hosting.controllers.test_hosted_examples import SCHEMAS


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"replica": 1}, "spec.replica"),
        ({"updateStrategy": {"typ": "OnDelete"}}, "spec.updateStrategy.typ"),
        ({"slurmd": {"resource": {"limits": {"cpu": "1"}}}}, "spec.slurmd.resource"),
        (
            {"template": {"spec": {"containers": [{"name": "x", "portz": []}]}}},
            "spec.template.spec.containers[x].portz",
        ),
        (
            {"template": {"spec": {"volumes": [{"name": "v", "cephfs": {"monitors": ["a"]}}]}}},
            "spec.template.spec.volumes[v].cephfs",
        ),
        ({"topologyPolicy": {"a": {"b": 1}}}, "spec.topologyPolicy"),
    ],
)
def test_a_field_that_nobody_has_is_named(spec: dict[str, Any], path: str) -> None:
    """kubectl would refuse it, and other clients lose it in silence."""
    made = converted({"controllerRef": {"name": "slurm"}, "replicas": 1, **spec})
    named = [note for note in made.notes if note.path == path and note.outcome == "not done"]
    assert len(named) == 1, made.notes
    assert made.is_open


def test_what_stands_beside_the_spec_is_named() -> None:
    manifest = {**yaml.safe_load(LEAST), "specs": {}, "data": {"a": "b"}}
    made = convert([ManifestDocument(manifest, "")])
    assert [str(note).partition(": ")[2].partition(":")[0] for note in made.notes] == ["data, specs dropped"]


def test_labels_and_limits_have_names_of_the_users_own() -> None:
    slurmd = {"resources": {"limits": {"example.org/fpga": "1"}}}
    template = {"metadata": {"labels": {"any.thing/at-all": "x"}}, "spec": {"nodeSelector": {"a": "b"}}}
    made = converted({"controllerRef": {"name": "s"}, "replicas": 1, "slurmd": slurmd, "template": template})
    assert made.notes == []


@pytest.mark.parametrize("kind", MODELS)
def test_the_fields_are_those_of_the_schema(kind: str) -> None:
    def names(schema: dict[str, Any]) -> Any:
        schema = schema.get("items", schema)
        return {key: names(each) for key, each in schema.get("properties", {}).items()} or 0

    def resolved(fields: Any) -> Any:
        fields = FIELDS[fields] if isinstance(fields, str) else fields
        return {key: resolved(each) for key, each in fields.items()} if fields else 0

    assert resolved(FIELDS[kind]) == names(SCHEMAS[kind]["properties"]["spec"])
