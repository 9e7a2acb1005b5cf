"""On which Kubernetes nodes a NodeSet with `scalingMode: DaemonSet` has a worker. Pure.

The rules are those of DaemonSets: labels, node affinity and taints; a taint NoSchedule ends no worker. The
scheduler then assigns each worker to its node, whose name is in the worker's affinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from redbox_hosting.api import names

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Placement:
    """Workers by their names, which are their nodes' short names."""

    start: Mapping[str, str]
    """Those that may start, with the full names of their Kubernetes nodes."""
    stay: frozenset[str] = frozenset()
    """Those that may run on."""
    clashes: tuple[str, ...] = ()
    """Kubernetes nodes that are left out, as another one has the same short name."""


def placement(pod: Manifest, nodes: Iterable[Manifest]) -> Placement:
    """`pod` is the spec of any worker. Of two nodes with the same short name the first one counts."""
    start: dict[str, str] = {}
    stay, taken, clashes = set(), set(), []
    for node in sorted(nodes, key=lambda each: str(each["metadata"]["name"])):
        name = str(node["metadata"]["name"])
        worker = names.short_name(name)
        if not _is_selected(pod, node) or not _tolerates(pod, node, {"NoExecute"}):
            continue
        if worker in taken:
            clashes.append(name)
            continue
        taken.add(worker)
        stay.add(worker)
        if _tolerates(pod, node, {"NoExecute", "NoSchedule"}):
            start[worker] = name
    return Placement(start, frozenset(stay), tuple(clashes))


def _is_selected(pod: Manifest, node: Manifest) -> bool:
    labels = node["metadata"].get("labels") or {}
    wanted = pod.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    fields = {names.NODE_NAME_FIELD: str(node["metadata"]["name"])}
    return any(_matches(term, labels, fields) for term in required.get("nodeSelectorTerms") or [])


def _matches(term: Manifest, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    """A term without a requirement matches nothing."""
    expressions, on_fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    return bool(expressions or on_fields) and (
        all(_holds(each, labels) for each in expressions) and all(_holds(each, fields) for each in on_fields)
    )


def _holds(requirement: Manifest, given: Mapping[str, str]) -> bool:
    value, values = given.get(requirement["key"]), requirement.get("values") or []
    operator = requirement["operator"]
    if operator in {"Exists", "DoesNotExist"}:
        return (value is not None) is (operator == "Exists")
    if operator in {"In", "NotIn"}:
        return (value in values) is (operator == "In")
    number, bound = _number(value), _number(values[0] if values else None)
    if number is None or bound is None:
        return False
    return number > bound if operator == "Gt" else number < bound


def _number(text: object) -> int | None:
    try:
        return int(str(text))
    except ValueError:
        return None


def _tolerates(pod: Manifest, node: Manifest, effects: set[str]) -> bool:
    taints = (node.get("spec") or {}).get("taints") or []
    tolerations = pod.get("tolerations") or []
    return all(
        any(_is_tolerated(taint, each) for each in tolerations)
        for taint in taints
        if taint.get("effect") in effects
    )


def _is_tolerated(taint: Manifest, toleration: Manifest) -> bool:
    if toleration.get("effect") not in {None, "", taint.get("effect")}:
        return False
    key, exists = toleration.get("key"), toleration.get("operator") == "Exists"
    if not key:
        return exists
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(key == taint.get("key")) and (exists or same)
