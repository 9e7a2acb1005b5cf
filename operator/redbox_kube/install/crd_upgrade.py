"""Upgrades CRDs to this release; a version with stored objects is never dropped."""

from __future__ import annotations

from collections.abc import Iterable

from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.runtime.clock import becomes_true

ESTABLISHED_WITHIN_S = 60.0


class NotEstablished(Exception):
    """The API server accepted a CRD and does not serve it."""


async def upgrade_crds(objects: ObjectClient, crds: Iterable[Object]) -> list[str]:
    """Apply these CRDs; returns a line for each."""
    report = []
    for crd in crds:
        where = ResourcePath(kinds.CUSTOM_RESOURCE_DEFINITION, crd["metadata"]["name"])
        before = await objects.get(where)
        wanted, kept = with_stored_versions(crd, before or {})
        await objects.apply(where, wanted)
        await _await_established(objects, where)
        action = "applied" if before else "created"
        report.append(f"{where.name}: {action}" + (f", keeping {', '.join(kept)}" if kept else ""))
    return report


def with_stored_versions(crd: Object, before: Object) -> tuple[Object, list[str]]:
    """The CRD with the old versions that still have stored objects, and the names of those."""
    has = {version["name"] for version in crd["spec"]["versions"]}
    stored = set(before.get("status", {}).get("storedVersions", [])) - has
    kept = [
        {**version, "storage": False}
        for version in before.get("spec", {}).get("versions", [])
        if version["name"] in stored
    ]
    spec = {**crd["spec"], "versions": [*crd["spec"]["versions"], *kept]}
    return {**crd, "spec": spec}, [version["name"] for version in kept]


async def _await_established(objects: ObjectClient, where: ResourcePath) -> None:
    async def is_established() -> bool:
        crd = await objects.get(where) or {}
        conditions = crd.get("status", {}).get("conditions") or ()  # null at first
        return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)

    if not await becomes_true(is_established, ESTABLISHED_WITHIN_S):
        raise NotEstablished(
            f"{where.name} is not served after {ESTABLISHED_WITHIN_S:.0f} s: "
            f"see the conditions of `kubectl describe crd {where.name}`"
        )
