"""CustomResourceDefinitions, assembled from the schemas of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from redbox_kube.api.kinds import CUSTOM_RESOURCE_DEFINITION, Kind
from redbox_kube.schemas.openapi import Schema, structural


def object_schema(rules: list[Schema], spec: Schema, status: type[BaseModel], description: str) -> Schema:
    """The schema of a whole object."""
    return {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural(status, defaults=False),
        },
        "x-kubernetes-validations": rules,
    }


def crd(kind: Kind, short_names: list[str], schema: Schema, columns: list[Schema]) -> Schema:
    """A CustomResourceDefinition of one version."""
    names = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
        "shortNames": short_names,
        "categories": ["redbox"],
    }
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": CUSTOM_RESOURCE_DEFINITION.api_version,
        "kind": CUSTOM_RESOURCE_DEFINITION.name,
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {"group": kind.group, "scope": kind.scope, "names": names, "versions": [version]},
    }


def crd_of(
    kind: Kind, description: str, *, short_names: Sequence[str] = (), columns: Sequence[Schema] = ()
) -> Schema:
    """The CRD of a kind whose model has a spec and a status."""
    if kind.model is None:
        raise ValueError(f"{kind} has no model")
    parts: dict[str, Any] = {name: field.annotation for name, field in kind.model.model_fields.items()}
    schema = object_schema([], structural(parts["spec"]), parts["status"], description)
    return crd(kind, [*short_names], schema, [*columns])


def immutable(fields: Sequence[str], kind: str) -> Schema:
    """A rule of the spec: a rule of the field itself is not run when the field is added or removed.

    The API server evaluates it with each write of the status, too: as a rule for each field it was a fifth of
    what such a write costs there.
    """
    same = [
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
        for name in fields
    ]
    first_changed = "".join(f"!({each}) ? '{name}' : " for each, name in zip(same, fields, strict=True))
    advice = f"is immutable: create another {kind}, or delete this one first"
    return {
        "rule": f"self == oldSelf || ({' && '.join(same)})",
        "message": f"the spec {advice}",
        "messageExpression": f"({first_changed}'spec') + ' {advice}'",
    }
