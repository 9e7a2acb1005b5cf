"""Statuses of Kubernetes that end a session or refuse it. Pure.

kubectl takes a connection that ends without a Status for exit code 0, and a refusal in another form for an
`unknown error`.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from aiohttp import web

from redbox_api.errors import Busy, NoSuchJob, NotAllowed, NotAuthenticated, RedboxError, Refused
from redbox_api.sessions.parts import SessionStatus

SUCCESS = SessionStatus(status="Success")
REASONS = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
    HTTPStatus.CONFLICT: "Conflict",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
}


def internal_error(message: str) -> SessionStatus:
    """A session that ended without an exit code."""
    cause = {"message": message}
    return SessionStatus.model_validate(
        {
            "status": "Failure",
            "message": message,
            "reason": "InternalError",
            "details": {"causes": [cause]},
            "code": int(HTTPStatus.INTERNAL_SERVER_ERROR),
        }
    )


def status_response(status: HTTPStatus, message: str, headers: dict[str, str] | None = None) -> web.Response:
    """A refusal, as the API server and kubectl read it."""
    document: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": REASONS.get(status, "InternalError"),
        "code": int(status),
    }
    return web.json_response(document, status=status, headers=headers)


def refused_by_redbox(error: RedboxError) -> web.Response:
    """With red-box's own sentence."""
    match error:
        case NoSuchJob():
            status = HTTPStatus.NOT_FOUND
        case NotAllowed() | NotAuthenticated():  # not 401: kubectl would ask its user to log in
            status = HTTPStatus.FORBIDDEN
        case Busy():
            status = HTTPStatus.SERVICE_UNAVAILABLE
        case Refused():
            status = HTTPStatus.BAD_REQUEST
        case _:
            message = f"red-box cannot be reached for this session: {error}"
            return status_response(HTTPStatus.SERVICE_UNAVAILABLE, message)
    return status_response(status, error.problem.detail)
