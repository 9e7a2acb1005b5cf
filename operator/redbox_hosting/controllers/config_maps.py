"""ConfigMaps of users, which objects of hosted Slurm name."""

from __future__ import annotations

from redbox_kube.api.kinds import CONFIG_MAP
from redbox_kube.api.objects import ObjectClient, ResourcePath
from redbox_kube.controller.steps import StepFailed


async def files_of_config_map(objects: ObjectClient, namespace: str, name: str) -> dict[str, str]:
    """Its content by key; raises StepFailed if there is none."""
    found = await objects.get(ResourcePath(CONFIG_MAP, name, namespace))
    if found is None:
        raise StepFailed(f"there is no ConfigMap {name} in the namespace: create it")
    return dict(found.get("data") or {})
