"""Schemas of pydantic's models in the structural form of the API server, with CEL rules.

Structural: no references, no null among several types, no titles, and only plain values as defaults.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]
EXAMPLES = re.compile(r"as (?:sbatch )?--[a-z-]+: ")  # example values follow
DROPPED = frozenset({"title", "$defs", "propertyNames"})


def rule(expression: str, message: str) -> Schema:
    """A CEL rule, with its message to the user."""
    return {"rule": expression, "message": message}


def one_of(*names: str) -> Schema:
    """The rule that exactly one of these fields is set."""
    given = ", ".join(f"has(self.{name})" for name in names)
    message = f"set exactly one of {', '.join(names)}"
    return {"x-kubernetes-validations": [rule(f"[{given}].exists_one(given, given)", message)]}


def at_most_one(*names: str) -> Schema:
    """The rule that not several of these fields are set."""
    given = ", ".join(f"has(self.{name})" for name in names)
    return rule(f"[{given}].filter(given, given).size() <= 1", "it names several sources: keep exactly one")


def structural(model: type[BaseModel], *, defaults: bool = True) -> Schema:
    """The model's whole schema in structural form."""
    schema = model.model_json_schema()
    return _resolved(schema, schema.get("$defs", {}), defaults=defaults)


def _resolved(node: Schema, definitions: Schema, *, defaults: bool) -> Schema:
    node = _dereferenced(node, definitions)
    made = {key: value for key, value in node.items() if key not in DROPPED}
    if not defaults or not isinstance(made.get("default"), str | int | bool):
        made.pop("default", None)
    if made.get("format") == "binary":
        made["format"] = "byte"  # Kubernetes' word for base64
    if "properties" in made:
        made["properties"] = {
            name: _with_example_message(_resolved(field, definitions, defaults=defaults))
            for name, field in made["properties"].items()
        }
    if isinstance(made.get("additionalProperties"), dict):
        # Written as a whole: merged key by key, an emptied map would be stored as null, and be refused.
        made["x-kubernetes-map-type"] = "atomic"
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _resolved(made[key], definitions, defaults=defaults)
        else:
            made.pop(key, None)
    return made


def _with_example_message(field: Schema) -> Schema:
    """A field in the syntax of a Slurm option: its error message has examples instead of a pattern."""
    if "pattern" not in field or not EXAMPLES.search(field.get("description", "")):
        return field
    pattern, sentence = field["pattern"], field["description"].partition(". ")[0].rstrip(".")
    rest = {key: value for key, value in field.items() if key != "pattern"}
    matches = rule(f"self.matches(r'{pattern}')", f"does not match its description: {sentence}")
    return rest | {"x-kubernetes-validations": [matches]}


def _dereferenced(node: Schema, definitions: Schema) -> Schema:
    """Without reference and null; fields beside a reference win over fields behind it."""
    while "$ref" in node or "anyOf" in node:
        rest = {key: value for key, value in node.items() if key not in {"$ref", "anyOf"}}
        if "$ref" in node:
            node = definitions[node["$ref"].rpartition("/")[2]] | rest
        else:  # optional fields are left out in Kubernetes, not null
            node = next(choice for choice in node["anyOf"] if choice.get("type") != "null") | rest
    return node
