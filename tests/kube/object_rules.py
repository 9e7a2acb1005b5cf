"""Rules of the API server for objects: selectors, and JSON merge patches. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from redbox_kube.api.objects import Object, ResourcePath


def is_selected(
    at: ResourcePath, body: Object, where: ResourcePath, selection: Mapping[str, str] | None
) -> bool:
    same = (at.kind, at.api_version) == (where.kind, where.api_version) and where.namespace in {
        "",
        at.namespace,
    }
    selection = selection or {}
    labels = body["metadata"].get("labels") or {}
    return (
        same
        and all(_holds(term, labels.get) for term in _terms(selection, "labelSelector"))
        and all(_holds(term, lambda path: _field(body, path)) for term in _terms(selection, "fieldSelector"))
    )


def _terms(selection: Mapping[str, str], name: str) -> Iterator[str]:
    return (term for term in selection.get(name, "").split(",") if term)


def _holds(term: str, value_of: Callable[[str], str | None]) -> bool:
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
