"""The contract as a document: what FastAPI derives from the routes, brought into the form that is served.

FastAPI takes every answer for JSON. Here problems get their media type, lines of a watch their schema, and
the document says that callers show a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from redbox.http.answers.problems import MEDIA_TYPE
from redbox_api.models import PartitionEvent, Problem, WatchEvent

REFERENCE = "#/components/schemas/"
OPEN_TO_ALL = frozenset({"/healthz", "/readyz"})
Document = dict[str, Any]
WORDS = (
    "Every request but those for /healthz and /readyz is made by a known caller: with a bearer token (a "
    "ServiceAccount token for red-box's audience, or one of `redbox token create`), or at the Unix socket, "
    "where the kernel says who calls. Refusals are problem documents (RFC 9457) whose `retry` says whether "
    "the same request may succeed later. Unknown fields and query parameters are refused by name."
)
NO_HTTP: Document = {
    "description": "What was sent is no HTTP, or its head is longer than 64 KiB: said in plain text.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


def describe(app: FastAPI) -> None:
    """Have the application describe itself so."""
    app.openapi = lambda: document_of(app)  # type: ignore[method-assign]  # FastAPI's documented way


def document_of(app: FastAPI) -> Document:
    """Make the document, once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            description=WORDS,
            license_info={"name": "Apache 2.0", "identifier": "Apache-2.0"},
            routes=app.routes,
        )
        app.openapi_schema = _finished(made)
    return app.openapi_schema


def _finished(document: Document) -> Document:
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas |= _schemas_of_streams()
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operation in _operations(document):
        if path not in OPEN_TO_ALL:
            operation["security"] = [{"token": []}]
        operation["responses"]["400"] = NO_HTTP
        for status, response in operation["responses"].items():
            if int(status) > HTTPStatus.BAD_REQUEST:
                response["content"] = {MEDIA_TYPE: {"schema": {"$ref": REFERENCE + Problem.__name__}}}
    return document


def _operations(document: Document) -> Iterator[tuple[str, Document]]:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


def _schemas_of_streams() -> Document:
    """What no route returns as one JSON document."""
    _, made = models_json_schema(
        [(model, "serialization") for model in (Problem, WatchEvent, PartitionEvent)],
        by_alias=True,
        ref_template=REFERENCE + "{model}",
    )
    schemas: Document = made["$defs"]
    return schemas
