"""Rules of the API server for objects: selectors, JSON merge patches, JSON patches. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from redbox_kube.api.kinds import STATEFUL_SET
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath

CHANGEABLE_OF_STATEFUL_SETS = frozenset({"replicas", "template", "updateStrategy", "minReadySeconds"})


def is_selected(
    at: ResourcePath, body: Object, where: ResourcePath, selection: Mapping[str, str] | None
) -> bool:
    same = at.kind == where.kind and where.namespace in {"", at.namespace}
    selection = selection or {}
    labels = body["metadata"].get("labels") or {}
    return (
        same
        and all(_holds(term, labels.get) for term in _terms(selection, "labelSelector"))
        and all(_holds(term, lambda path: _field(body, path)) for term in _terms(selection, "fieldSelector"))
    )


def _terms(selection: Mapping[str, str], name: str) -> Iterator[str]:
    return (term for term in re.split(r",(?![^(]*\))", selection.get(name, "")) if term)


def _holds(term: str, value_of: Callable[[str], str | None]) -> bool:
    if in_these := re.fullmatch(r"(\S+) in \((.*)\)", term):
        return value_of(in_these[1]) in in_these[2].split(",")
    if "!=" in term:
        key, _, value = term.partition("!=")
        return value_of(key) != value
    key, equals, value = term.partition("=")
    found = value_of(key)
    return found == value if equals else found is not None


def _field(body: Object, path: str) -> str:
    found: Any = body
    for key in path.split("."):
        found = (found or {}).get(key)
    return str(found or "")


def with_conditions_of_others(found: Object, body: Object) -> Object:
    """What is applied, with the conditions of other types: that list is merged by its types."""
    own = body.get("status", {}).get("conditions")
    if own is None:
        return body
    types = {each["type"] for each in own}
    others = [each for each in found.get("status", {}).get("conditions") or [] if each["type"] not in types]
    return {**body, "status": {**body["status"], "conditions": [*others, *own]}}


def merge_patched(target: Object, patch: Object) -> Object:
    """As a JSON merge patch has it: null removes."""
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            inner = merged.get(key)
            merged[key] = merge_patched(inner if isinstance(inner, dict) else {}, value)
        else:
            merged[key] = value
    return merged


def withdrawal(before: Object, after: Object) -> Object:
    """Null for each field that a manager applied before and no longer names."""
    gone: Object = {}
    for key, value in before.items():
        if key not in after:
            gone[key] = None
        elif (
            isinstance(value, dict)
            and isinstance(after[key], dict)
            and (inner := withdrawal(value, after[key]))
        ):
            gone[key] = inner
    return gone


def check_immutable(where: ResourcePath, before: Object, after: Object) -> None:
    """Raises ApiRefused, as for most fields of a StatefulSet."""
    old, new = before.get("spec"), after.get("spec")
    if where.kind != STATEFUL_SET or not old or not new:
        return
    if any(old.get(key) != new.get(key) for key in {*old, *new} - CHANGEABLE_OF_STATEFUL_SETS):
        message = f'StatefulSet.apps "{where.name}" is invalid: spec: Forbidden: updates to statefulset spec'
        raise ApiRefused(HTTPStatus.UNPROCESSABLE_ENTITY, message)


def json_patched(target: Object, operations: list[Object]) -> Object:
    """As JSON patches have it, for `test`, `add` and `remove`; a `test` that fails refuses all."""
    patched = copy.deepcopy(target)
    for operation in operations:
        *parents, last = (part.replace("~1", "/") for part in operation["path"].split("/")[1:])
        inner: Any = patched
        for key in parents:
            inner = inner[int(key) if isinstance(inner, list) else key]
        place = int(last) if isinstance(inner, list) else last
        match operation["op"]:
            case "add":
                inner[place] = operation["value"]
            case "remove":
                del inner[place]
            case "test" if inner[place] != operation["value"]:
                raise ApiRefused(HTTPStatus.UNPROCESSABLE_ENTITY, f"testing value {operation['path']} failed")
    return patched
