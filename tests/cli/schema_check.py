"""What the API server would say of a value by the structural schema of a CRD; CEL is the real one's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


def problems_of(value: Any, schema: dict[str, Any], path: str = "spec") -> list[str]:
    """Each with its path."""
    if value is None:
        return [] if schema.get("nullable") else [f"{path}: null"]
    return [*_problems(value, schema, path)]


def _problems(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield f"{path}: neither a number nor a text"
        return
    wanted = TYPES[schema["type"]]
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        yield f"{path}: {value!r} is no {schema['type']}"
    elif isinstance(value, dict):
        yield from _object(value, schema, path)
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            yield f"{path}: too long"
        for item in value:
            yield from problems_of(item, schema["items"], f"{path}[]")
    else:
        yield from _scalar(value, schema, path)


def _object(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    if "additionalProperties" in schema:
        for key, each in value.items():
            yield from problems_of(each, schema["additionalProperties"], f"{path}.{key}")
        return
    fields = schema.get("properties", {})
    yield from (f"{path}.{key}: unknown field" for key in value if key not in fields)
    yield from (f"{path}.{key}: required" for key in schema.get("required", []) if key not in value)
    for key in value.keys() & fields.keys():
        yield from problems_of(value[key], fields[key], f"{path}.{key}")


def _scalar(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{path}: length"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{path}: {value!r} does not match {schema['pattern']}"
    elif not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value} is out of bounds"
