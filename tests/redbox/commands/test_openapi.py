"""The contract that is written down is the contract that is served."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from redbox.cli import app
from tests.redbox.http.harness import standing

WRITTEN = Path(__file__).parents[3] / "docs/reference/openapi.json"


def test_the_document_in_docs_is_up_to_date() -> None:
    printed = CliRunner().invoke(app, ["openapi"]).stdout
    assert WRITTEN.read_text() == printed, "the contract changed: make generate"


async def test_the_server_shows_the_same() -> None:
    async with standing() as stand, stand.at_socket() as http:
        assert (await http.get("/openapi.json")).json() == json.loads(WRITTEN.read_text())


def test_every_reference_in_it_leads_somewhere() -> None:
    document = json.loads(WRITTEN.read_text())
    references = set(_references(document))
    assert references
    for reference in references:
        section, _, name = reference.removeprefix("#/").rpartition("/")
        assert section == "components/schemas"
        assert name in document["components"]["schemas"]


def _references(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for item in value.values() for found in _references(item)]
    return [found for item in value for found in _references(item)] if isinstance(value, list) else []
