"""The reference page of the kinds, generated from the CRDs: each field once, with type and meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from redbox_kube.schemas.openapi import Schema

AS_ELSEWHERE = "as in a pod"  # described in Kubernetes' own reference
FEWEST_SHARED = 2  # fields of an object that are worth a reference to an equal one
BEGIN = """\
# The kinds, field by field

Generated from the CRDs by `make generate`. `kubectl explain slurmjob.spec --recursive` shows the same; the
[guide](../users/guide.md) explains how to use them. Equal fields of several objects are listed once.
"""


class DescribedField(NamedTuple):
    """One field of a kind."""

    path: str
    type: str
    words: str

    def below(self, parent: str) -> DescribedField | None:
        """The row by its path inside of `parent`, if it is there."""
        inside = re.match(re.escape(parent) + r"(\[\])?\.", self.path)
        return self._replace(path=self.path[inside.end() :]) if inside else None


class KindsPage:
    """The page, with what it has listed so far."""

    def __init__(self) -> None:
        self._objects: dict[tuple[DescribedField, ...], tuple[str, str]] = {}
        self._tables: dict[str, list[tuple[str, list[DescribedField]]]] = {"spec": [], "status": []}

    def section(self, crd: Schema) -> str:
        """One kind, with its spec and its status."""
        spec = crd["spec"]
        version = spec["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        short = "".join(f", short `{name}`" for name in spec["names"]["shortNames"])
        title = f"{spec['names']['kind']} (`{spec['group']}/{version['name']}`{short})"
        lines = ["", f"## {title}", "", f"{schema['description']} {spec['scope']}."]
        if rules := [f"- {item['message']}" for item in _rules(schema)]:
            lines += ["", *rules]
        for part in ("spec", "status"):
            lines += ["", *self._table(part, title, [*_fields(schema["properties"][part])])]
        return "\n".join(lines) + "\n"

    def _table(self, part: str, title: str, rows: list[DescribedField]) -> list[str]:
        """The rows, without those of an earlier table that are all among them."""
        same = next((earlier for earlier in self._tables[part] if set(earlier[1]) <= set(rows)), None)
        self._tables[part].append((title, rows))
        if same is None:
            return [*_head(part), *self._folded(title, rows)]
        further = [row for row in rows if row not in same[1]]
        listed = ["", *_head(part), *self._folded(title, further)] if further else []
        return [f"The {part} is that of {_link(same[0])}{', with:' if further else '.'}", *listed]

    def _folded(self, title: str, rows: list[DescribedField]) -> Iterator[str]:
        """The rows; an object with the fields of an earlier one refers to it."""
        folded = None
        for row in rows:
            if folded and row.below(folded.path):
                continue
            folded = None
            fields = tuple(field for other in rows if (field := other.below(row.path)))
            kind, path = self._objects.setdefault(fields, (title, row.path))
            if len(fields) >= FEWEST_SHARED and (kind, path) != (title, row.path):
                folded = row
                of = "" if kind == title else f" of {_link(kind)}"
                words = f"{row.words} Fields as in `{path}`{of}.".strip()
            else:
                words = row.words
            yield f"| `{row.path}` | {row.type} | {words} |"


def kinds_page(crds: list[Schema], begin: str = BEGIN) -> str:
    """All kinds, each with its spec and its status."""
    page = KindsPage()
    return begin + "".join(page.section(crd) for crd in crds)


def _head(part: str) -> list[str]:
    return [f"| {part} | type | what it means |", "|---|---|---|"]


def _link(heading: str) -> str:
    """To a heading of this page, by the anchor that forges make of it."""
    anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    return f"[{heading}](#{anchor})"


def _rules(schema: Schema) -> list[Schema]:
    own = schema.get("x-kubernetes-validations", [])
    spec = schema["properties"]["spec"].get("x-kubernetes-validations", [])
    return [item for item in [*own, *spec] if "immutable" not in item["message"]]


def _fields(schema: Schema, path: str = "") -> Iterator[DescribedField]:
    for name, field in schema.get("properties", {}).items():
        own_path = f"{path}{name}"
        yield DescribedField(
            own_path, _type(field), _words(field, required=name in schema.get("required", []))
        )
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
    """The description, with what it does not say of values, default and requirement."""
    description = field.get("description", "")
    words = [description]
    allowed = [str(value) for value in field.get("enum", ())]
    if not all(re.search(rf"\b{value}\b", description) for value in allowed):
        words.append(f"One of {', '.join(f'`{value}`' for value in allowed)}.")
    if field.get("default", "") not in ("", False) and "the default" not in description:
        words.append(f"Default: `{field['default']}`.")
    if required:
        words.append("Required.")
    return " ".join(word for word in words if word).replace("|", "\\|").replace("\n", " ")
