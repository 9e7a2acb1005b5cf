"""`redbox openapi`: prints the contract without a server; docs/openapi.json is its output."""

from __future__ import annotations

import json

import typer

from redbox.http.app import bare_app


def openapi() -> None:
    """Print the OpenAPI document of this version."""
    typer.echo(document(), nl=False)


def document() -> str:
    """Render the contract; equal contracts give equal text."""
    return json.dumps(bare_app().openapi(), indent=2, sort_keys=True) + "\n"
