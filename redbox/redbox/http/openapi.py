"""The OpenAPI document: FastAPI derives it from the routes, and this module completes it.

FastAPI describes every response as JSON. Here problems get their media type, lines of a watch their schema,
and routes the token that callers send.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from redbox.http.answers.problems import MEDIA_TYPE
from redbox_api.models import PartitionEvent, Problem, WatchEvent
from redbox_api.sessions.parts import ExecRequest, PortRequest

STREAMED = (Problem, WatchEvent, PartitionEvent, ExecRequest, PortRequest)
RECEIVED = frozenset({ExecRequest, PortRequest})
REFERENCE = "#/components/schemas/"
PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
Document = dict[str, Any]
DESCRIPTION = (
    "Every request but those for /healthz and /readyz is authenticated: by a bearer token (a ServiceAccount "
    "token for red-box's audience, or one of `redbox token create`), or at the Unix socket by the kernel's "
    "credentials of the peer. Errors are problem documents (RFC 9457) whose `retry` says whether the same "
    "request may succeed later. Unknown fields and query parameters are rejected by name."
)
NOT_HTTP: Document = {
    "description": "The request is not HTTP, or its head is longer than 64 KiB. The message is plain text.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


def describe(app: FastAPI) -> None:
    """Set the application's own `openapi` method."""
    app.openapi = lambda: document_of(app)  # type: ignore[method-assign]  # FastAPI's documented way


def document_of(app: FastAPI) -> Document:
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            description=DESCRIPTION,
            license_info={"name": "Apache 2.0", "identifier": "Apache-2.0"},
            routes=app.routes,
        )
        app.openapi_schema = _completed(document)
    return app.openapi_schema


def _completed(document: Document) -> Document:
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas |= _schemas_of_streams()
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    operations = [(path, op) for path, methods in document["paths"].items() for op in methods.values()]
    for path, operation in operations:
        if path not in PUBLIC_PATHS:
            operation["security"] = [{"token": []}]
        operation["responses"]["400"] = NOT_HTTP
        for status, response in operation["responses"].items():
            if int(status) > HTTPStatus.BAD_REQUEST:
                response["content"] = {MEDIA_TYPE: {"schema": {"$ref": REFERENCE + Problem.__name__}}}
    return document


def _schemas_of_streams() -> Document:
    """Schemas of the models that no route returns as one JSON document."""
    _, definitions = models_json_schema(
        [(model, "validation" if model in RECEIVED else "serialization") for model in STREAMED],
        by_alias=True,
        ref_template=REFERENCE + "{model}",
    )
    schemas: Document = definitions["$defs"]
    return schemas
