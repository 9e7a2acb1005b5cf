"""`redbox openapi`: prints the contract without a server; docs/reference/openapi.json is its output."""

from __future__ import annotations

import json

from redbox.commands.exit_codes import say
from redbox.http.app import bare_app


def openapi() -> None:
    """Print the OpenAPI document of this version."""
    say(document().rstrip("\n"))


def document() -> str:
    """Render the contract; equal contracts give equal text."""
    return json.dumps(bare_app().openapi(), indent=2, sort_keys=True) + "\n"
