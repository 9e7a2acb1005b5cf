"""The names of all fields of hosted Slurm's kinds, as a module of `kubectl slurm`, which has no CRDs."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any

from redbox_hosting.api.crds import hosting_crds
from redbox_kube.schemas.openapi import Schema

BEGIN = '''\
"""The names of the fields of each kind of hosted Slurm. Made by `make generate` from the CRDs; do not edit.

By name: 0 for a field whose content is the user's, an object for one with fields, and a text for the fields
that stand under this name here, since several kinds have them.
"""

import json
from typing import Any

FIELDS: dict[str, Any] = json.loads("""
'''
END = '''
""")
'''
WIDTH = 108
SHORTEST_SHARED = 400
"""In characters: what is shorter is written again."""
Names = dict[str, Any]


def field_names_module() -> str:
    """Its text."""
    kinds = {crd["spec"]["names"]["kind"]: _names(_spec_of(crd)) for crd in hosting_crds()}
    found = Counter(json.dumps(each) for kind in kinds.values() for each in _objects(kind))
    shared = sorted(text for text, count in found.items() if count > 1 and len(text) > SHORTEST_SHARED)
    references = {text: f"part-{number}" for number, text in enumerate(shared)}
    parts = {references[text]: _with_references(json.loads(text), references) for text in shared}
    made = {**{kind: _with_references(each, references) for kind, each in kinds.items()}, **parts}
    text = json.dumps(made, separators=(", ", ": "))
    return BEGIN + textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) + END


def _spec_of(crd: Schema) -> Schema:
    schema: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def _names(schema: Schema) -> Any:  # noqa: ANN401 (of JSON)
    if "items" in schema:
        return _names(schema["items"])
    fields = schema.get("properties")
    return {name: _names(field) for name, field in fields.items()} if fields else 0


def _objects(names: Any) -> Iterator[Names]:  # noqa: ANN401 (of JSON)
    if isinstance(names, dict):
        yield names
        for each in names.values():
            yield from _objects(each)


def _with_references(names: Names, references: dict[str, str]) -> Names:
    return {
        name: (references.get(json.dumps(each)) or _with_references(each, references)) if each else 0
        for name, each in names.items()
    }
