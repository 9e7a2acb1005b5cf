"""The reference page of the kinds, generated from the CRDs: every field, its type and its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
AS_ELSEWHERE = "as in a pod"  # described in Kubernetes' own reference
BEGIN = """\
# The kinds, field by field

Generated from the CRDs (`make generate`); `kubectl explain slurmjob.spec --recursive` shows the same. The
[guide](../users/guide.md) explains how to use them.
"""


def kinds_page(crds: list[Schema]) -> str:
    """All kinds, each with its spec and its status."""
    return BEGIN + "".join(_kind(crd) for crd in crds)


def _kind(crd: Schema) -> str:
    spec = crd["spec"]
    version = spec["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    short = "".join(f", short `{name}`" for name in spec["names"]["shortNames"])
    lines = [
        "",
        f"## {spec['names']['kind']} (`{spec['group']}/{version['name']}`{short})",
        "",
        f"{schema['description']} {spec['scope']}.",
        "",
        *[f"- {item['message']}" for item in _rules(schema)],
    ]
    for part in ("spec", "status"):
        lines += ["", f"| {part} | type | what it means |", "|---|---|---|"]
        lines += [
            f"| `{path}` | {kind} | {words} |" for path, kind, words in _fields(schema["properties"][part])
        ]
    return "\n".join(lines) + "\n"


def _rules(schema: Schema) -> list[Schema]:
    own = schema.get("x-kubernetes-validations", [])
    spec = schema["properties"]["spec"].get("x-kubernetes-validations", [])
    return [item for item in [*own, *spec] if "immutable" not in item["message"]]


def _fields(schema: Schema, path: str = "") -> Iterator[tuple[str, str, str]]:
    for name, field in schema.get("properties", {}).items():
        own_path = f"{path}{name}"
        yield own_path, _type(field), _words(field, required=name in schema.get("required", []))
        if AS_ELSEWHERE in field.get("description", "").lower():
            continue
        inner = field.get("items", field)
        yield from _fields(inner, f"{own_path}{'[]' if inner is not field else ''}.")


def _type(field: Schema) -> str:
    if "items" in field:
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return f"map to {_type(field['additionalProperties'])}"
    return str(field.get("format") or field.get("type") or "integer or string")


def _words(field: Schema, *, required: bool) -> str:
    words = [field.get("description", "")]
    if "enum" in field:
        words.append(f"One of {', '.join(f'`{value}`' for value in field['enum'])}.")
    if "default" in field and field["default"] not in ("", False):
        words.append(f"Default: `{field['default']}`.")
    if required:
        words.append("Required.")
    return " ".join(word for word in words if word).replace("|", "\\|").replace("\n", " ")
