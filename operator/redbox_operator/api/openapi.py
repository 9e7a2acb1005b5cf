"""Schemas of pydantic's models as the API server takes them: structural.

That is: no references, no null as one of several types, no titles, and defaults only where they are plain
values. Its rules are CEL.
"""

from __future__ import annotations

import re
from typing import Any

Schema = dict[str, Any]
EXAMPLES = re.compile(r"as (?:sbatch )?--[a-z-]+: ")  # of values follow
DROPPED = frozenset({"title", "$defs", "propertyNames"})


def rule(expression: str, message: str) -> Schema:
    """One CEL rule of the API server, with what it tells the author."""
    return {"rule": expression, "message": message}


def one_of(*names: str) -> Schema:
    """The rule that exactly one of these fields is given."""
    given = ", ".join(f"has(self.{name})" for name in names)
    message = f"say exactly one of {', '.join(names)}"
    return {"x-kubernetes-validations": [rule(f"[{given}].exists_one(given, given)", message)]}


def structural(schema: Schema, *, defaults: bool = True) -> Schema:
    """The same schema, whole."""
    return _resolved(schema, schema.get("$defs", {}), defaults=defaults)


def _resolved(node: Schema, definitions: Schema, *, defaults: bool) -> Schema:
    node = _followed(node, definitions)
    made = {key: value for key, value in node.items() if key not in DROPPED}
    if not defaults or not _is_plain(made.get("default")):
        made.pop("default", None)
    if made.get("format") == "binary":
        made["format"] = "byte"  # Kubernetes' word for base64
    if "properties" in made:
        made["properties"] = {
            name: _in_words(_resolved(one, definitions, defaults=defaults))
            for name, one in made["properties"].items()
        }
    if isinstance(made.get("additionalProperties"), dict):
        # Written whole: merged key by key, one that becomes empty would be stored as null, and be refused.
        made["x-kubernetes-map-type"] = "atomic"
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _resolved(made[key], definitions, defaults=defaults)
        else:
            made.pop(key, None)
    return made


def _in_words(field: Schema) -> Schema:
    """What is written as an option of Slurm's: a bad one is told what good ones are, and not a pattern."""
    if "pattern" not in field or not EXAMPLES.search(field.get("description", "")):
        return field
    pattern, sentence = field["pattern"], field["description"].partition(". ")[0].rstrip(".")
    rest = {key: value for key, value in field.items() if key != "pattern"}
    told = rule(f"self.matches(r'{pattern}')", f"not as it is described: {sentence}")
    return rest | {"x-kubernetes-validations": [told]}


def _followed(node: Schema, definitions: Schema) -> Schema:
    """Without reference and without null; what is said here wins over what is said there."""
    while "$ref" in node or "anyOf" in node:
        rest = {key: value for key, value in node.items() if key not in {"$ref", "anyOf"}}
        if "$ref" in node:
            node = definitions[node["$ref"].rpartition("/")[2]] | rest
        else:  # optional fields are left out in Kubernetes, not null
            node = next(choice for choice in node["anyOf"] if choice.get("type") != "null") | rest
    return node


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | bool)
