"""What tests of the chart look for among its objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]
CONTROLLERS = ("redbox-operator", "redbox-resourced")


def of_kind(objects: Objects, *kinds: str) -> Objects:
    return [one for one in objects if one["kind"] in kinds]


def is_hook(one: Mapping[str, Any]) -> bool:
    return "helm.sh/hook" in one["metadata"].get("annotations", {})


def rules_of(objects: Objects, account: str) -> Iterator[dict[str, Any]]:
    """Every rule that is bound to a service account, wherever."""
    bound = {
        (binding["roleRef"]["kind"], binding["roleRef"]["name"], binding["metadata"].get("namespace", ""))
        for binding in of_kind(objects, "ClusterRoleBinding", "RoleBinding")
        if any(subject["name"] == account for subject in binding["subjects"])
    }
    for role in of_kind(objects, "ClusterRole", "Role"):
        if (role["kind"], role["metadata"]["name"], role["metadata"].get("namespace", "")) in bound:
            yield from role["rules"]
