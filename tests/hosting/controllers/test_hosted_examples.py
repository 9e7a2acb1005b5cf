"""The manifests of examples/hosted: the API server keeps every field, and they become a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_hosting.api import names
from redbox_hosting.api.crds import hosting_crds
from redbox_hosting.api.nodeset import NodeSet
from redbox_kube.api import kinds
from tests.hosting.controllers.access_bench import at, bench

FOLDER = Path(__file__).parents[3] / "examples/hosted"
MANIFESTS = [
    manifest for file in sorted(FOLDER.glob("*.yaml")) for manifest in yaml.safe_load_all(file.read_text())
]
OURS = {
    kind.name: kind
    for kind in (
        names.CONTROLLERS,
        names.NODE_SETS,
        names.LOGIN_SETS,
        names.REST_APIS,
        names.ACCOUNTINGS,
        names.TOKENS,
    )
}
KINDS = {**OURS, "ConfigMap": kinds.CONFIG_MAP}
SCHEMAS = {
    crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for crd in hosting_crds()
}


def pruned(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """Fields that the API server would leave out."""
    if isinstance(value, list):
        return [each for item in value for each in pruned(item, schema["items"], f"{path}[]")]
    if not isinstance(value, dict) or "additionalProperties" in schema:
        return []
    known = schema.get("properties", {})
    missing = [f"{path}.{key}" for key in value if key not in known]
    kept = [key for key in value if key in known]
    return missing + [each for key in kept for each in pruned(value[key], known[key], f"{path}.{key}")]


@pytest.mark.parametrize(
    "manifest", [each for each in MANIFESTS if each["kind"] in OURS], ids=lambda m: m["kind"]
)
def test_the_api_server_keeps_every_field(manifest: dict[str, Any]) -> None:
    assert manifest["apiVersion"] == names.API_VERSION
    assert pruned(manifest["spec"], SCHEMAS[manifest["kind"]]["properties"]["spec"]) == []


async def test_they_become_a_cluster_whose_users_and_token_are_there() -> None:
    async with bench() as made:
        for manifest in MANIFESTS:
            made.api.put(at(KINDS[manifest["kind"]], manifest["metadata"]["name"]), manifest)
        made.register("slurm")
        for kind, name in ((names.ACCOUNTINGS, "acct"), (names.REST_APIS, "api"), (names.TOKENS, "alice")):
            await made.has(lambda kind=kind, name=name: made.condition(kind, name).get("status") == "True")  # type: ignore[misc]
        assert made.secret("alice-jwt-alice")["SLURM_JWT"]
        assert made.secret("api-restapi-tls").keys() >= {"ca.crt", "tls.crt"}
        assert made.slurmdbd.users.keys() == {"alice", "bob"}
        conf = made.api.objects[at(kinds.CONFIG_MAP, "slurm-config")]["data"]["slurm.conf"]
        assert "PartitionName=all" in conf


def test_the_workers_are_what_the_page_says() -> None:
    (manifest,) = [each for each in MANIFESTS if each["kind"] == "NodeSet"]
    node_set = NodeSet.model_validate({**manifest, "metadata": {**manifest["metadata"], "uid": "1"}})
    assert (node_set.name, node_set.spec.replicas) == ("cpu", 2)
