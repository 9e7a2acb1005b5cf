"""CustomResourceDefinitions, made from the models in `kinds`: one place says what a field is and means.

The API server wants structural schemas: no references, no null as one of several types, no titles.
"""

from __future__ import annotations

from typing import Any

from redbox_kube.names import GROUP, VERSION
from redbox_kube.slurm_cluster import SlurmClusterSpec
from redbox_operator.kinds import SlurmJobSpec

Schema = dict[str, Any]
DROPPED = frozenset({"title", "$defs", "additionalProperties", "default"})

IMMUTABLE = {"rule": "self == oldSelf", "message": "spec is immutable: delete the SlurmJob, or make another"}

STATUS_OF_JOB: Schema = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "status": {"type": "string"},
        "state": {"type": "string"},
        "reason": {"type": "string"},
        "message": {"type": "string"},
        "jobID": {"type": "string"},
        "cluster": {"type": "string"},
        "partition": {"type": "string"},
        "user": {"type": "string"},
        "nodes": {"type": "array", "items": {"type": "string"}},
        "exitCode": {"type": "integer"},
        "signal": {"type": "integer"},
        "companion": {"type": "object", "properties": {"uid": {"type": "string"}}},
        "observedGeneration": {"type": "integer"},
    },
}

COLUMNS_OF_JOB: list[Schema] = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Job", "type": "string", "jsonPath": ".status.jobID", "description": "Slurm's job id"},
    {"name": "Cluster", "type": "string", "jsonPath": ".spec.cluster"},
    {"name": "Partition", "type": "string", "jsonPath": ".status.partition"},
    {"name": "Nodes", "type": "string", "jsonPath": ".status.nodes"},
    {"name": "Exit", "type": "integer", "jsonPath": ".status.exitCode"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Reason", "type": "string", "jsonPath": ".status.reason", "priority": 1},
]


def all_crds() -> list[Schema]:
    """Every CRD of ours."""
    job = structural(SlurmJobSpec.model_json_schema(by_alias=True))
    job["x-kubernetes-validations"] = [IMMUTABLE]
    cluster = structural(SlurmClusterSpec.model_json_schema(by_alias=True))
    job_names, cluster_names = ("SlurmJob", "slurmjobs", "sj"), ("SlurmCluster", "slurmclusters", "slc")
    return [
        _crd(job_names, job, STATUS_OF_JOB, COLUMNS_OF_JOB, scope="Namespaced"),
        _crd(cluster_names, cluster, {"type": "object"}, [], scope="Cluster"),
    ]


def _crd(
    names: tuple[str, str, str], spec: Schema, status: Schema, columns: list[Schema], *, scope: str
) -> Schema:
    kind, plural, short = names
    properties = {"spec": spec, "status": status}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": properties}},
    }
    all_names = {
        "kind": kind,
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": [short],
        "categories": ["redbox"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": scope, "names": all_names, "versions": [version]},
    }


def structural(schema: Schema) -> Schema:
    """The same schema as the API server takes it."""
    return _resolved(schema, schema.get("$defs", {}))


def _resolved(node: Schema, definitions: Schema) -> Schema:
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    if "anyOf" in node:
        node = _without_null(node)
    made = {key: value for key, value in node.items() if key not in DROPPED}
    if made.get("format") == "binary":
        made["format"] = "byte"  # Kubernetes' word for base64
    if "properties" in made:
        made["properties"] = {name: _resolved(one, definitions) for name, one in made["properties"].items()}
    if "items" in made:
        made["items"] = _resolved(made["items"], definitions)
    return made


def _without_null(node: Schema) -> Schema:
    """Optional fields are left out in Kubernetes, not null."""
    choices = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    return {**choices[0], **rest}
