"""`redbox openapi`: the contract as a document, without a server. docs/openapi.json is made by it."""

from __future__ import annotations

import json

import typer

from redbox.http.app import bare_app


def openapi() -> None:
    """Print the OpenAPI document of this version."""
    typer.echo(document(), nl=False)


def document() -> str:
    """The same, as text that is equal for equal contracts."""
    described = bare_app().openapi()
    return json.dumps(described, indent=2, sort_keys=True) + "\n"
