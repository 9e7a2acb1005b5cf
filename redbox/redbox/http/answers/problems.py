"""Every refusal as one RFC 9457 document: what, why in words, and whether trying again can help.

ProblemError
├── NotAuthenticated   401
├── NotAllowed         403
├── NotFound           404
├── Taken              409
├── TooSlow            408
├── TooOld             410
├── TooLarge           413
├── NoSuchRange        416
├── NotAccepted        422
├── TooMany            429
├── Broken             500
└── Unavailable        503

The `type` of a problem ends in a slug that never changes its meaning; texts may.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from redbox.http.answers.validation_messages import told
from redbox.observability.sanitize import printable
from redbox_api.models import Problem
from redbox_shared.wire import PROBLEMS

MEDIA_TYPE = "application/problem+json"


class ProblemError(HTTPException):
    """Base: the class says what kind of problem it is, the instance says what happened."""

    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR
    slug: ClassVar[str] = "broken"
    title: ClassVar[str] = "Something broke"
    retry: bool = False

    def __init__(
        self,
        detail: str,
        *,
        retry: bool | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status_code=self.status, detail=detail, headers=headers)
        self.retry = type(self).retry if retry is None else retry
        self.retry_after = retry_after

    def document(self, request_id: str) -> Problem:
        """What goes over the wire."""
        return Problem(
            type=PROBLEMS + self.slug,
            title=self.title,
            status=self.status,
            detail=printable(self.detail),
            retry=self.retry,
            request_id=request_id,
        )


class NotAuthenticated(ProblemError):
    """Nobody knows who asks."""

    status, slug, title = HTTPStatus.UNAUTHORIZED, "not-authenticated", "The caller is not known"


class NotAllowed(ProblemError):
    """The caller is known, and may not."""

    status, slug, title = HTTPStatus.FORBIDDEN, "not-allowed", "The caller may not do this"


class NotFound(ProblemError):
    """There is no such thing, or it is somebody else's."""

    status, slug, title = HTTPStatus.NOT_FOUND, "not-found", "There is no such thing"


class Taken(ProblemError):
    """The key stands for something else, or for nothing any more."""

    status, slug, title = HTTPStatus.CONFLICT, "taken", "The key is taken"


class TooSlow(ProblemError):
    """The rest of the request did not come."""

    status, slug, title, retry = HTTPStatus.REQUEST_TIMEOUT, "too-slow", "The request came too slowly", True


class TooOld(ProblemError):
    """A revision that is no longer, or never was, known here."""

    status, slug, title = HTTPStatus.GONE, "too-old", "The revision is not known"


class TooLarge(ProblemError):
    """More bytes than the administrator allows."""

    status, slug, title = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", "The request is too large"


class NoSuchRange(ProblemError):
    """It begins behind the file's last byte."""

    status, slug, title = (
        HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
        "no-such-range",
        "There is no such range",
    )


class NotAccepted(ProblemError):
    """It can never work like this."""

    status, slug, title = HTTPStatus.UNPROCESSABLE_ENTITY, "not-accepted", "This cannot work"


class TooMany(ProblemError):
    """Slower."""

    status, slug, title, retry = HTTPStatus.TOO_MANY_REQUESTS, "too-many", "Too many requests", True


class Broken(ProblemError):
    """A defect of red-box."""

    status, slug, title, retry = HTTPStatus.INTERNAL_SERVER_ERROR, "broken", "Red-box has a defect here", True


class Unavailable(ProblemError):
    """Not now."""

    status, slug, title, retry = HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "Not now", True


BY_STATUS: dict[int, type[ProblemError]] = {
    kind.status: kind
    for kind in (
        NotAuthenticated,
        NotAllowed,
        NotFound,
        Taken,
        TooSlow,
        TooOld,
        TooLarge,
        NoSuchRange,
        NotAccepted,
        TooMany,
        Broken,
        Unavailable,
    )
}


def problem_response(problem: ProblemError, request_id: str) -> Response:
    """The answer that carries a problem."""
    headers = dict(problem.headers or {})
    if problem.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(problem.retry_after)))
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    body = problem.document(request_id).model_dump(mode="json", by_alias=True)
    return JSONResponse(body, problem.status, headers, media_type=MEDIA_TYPE)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """A route's `responses`: the problems that it may answer with (`openapi` gives them their form)."""
    return {status: {"description": BY_STATUS[status].title + "."} for status in statuses}


ALWAYS = (401, 403, 422, 429, 500, 503)
"""What every route may answer that has a caller."""


def as_problem(error: HTTPException) -> ProblemError:
    """What the framework itself refuses (no such route, a method that is not there) in our form."""
    if isinstance(error, ProblemError):
        return error
    if error.status_code == HTTPStatus.BAD_REQUEST:  # FastAPI's word for bytes that are no text
        return NotAccepted("the body is not JSON in UTF-8")
    return _framework_problem(error.status_code)(_framework_words(error), headers=error.headers)


def _framework_words(error: HTTPException) -> str:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return "there is nothing at this path; /openapi.json tells what there is"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"this path takes only {(error.headers or {}).get('Allow', 'other methods')}"
    return str(error.detail)


def _framework_problem(status: int) -> type[ProblemError]:
    if status in BY_STATUS:
        return BY_STATUS[status]
    phrase = HTTPStatus(status)
    return type(
        "FrameworkProblem", (ProblemError,), {"status": phrase, "slug": "http", "title": phrase.phrase}
    )


def unreadable(error: RequestValidationError) -> NotAccepted:
    """Which fields were wrong, by name."""
    return NotAccepted(told(error.errors()))
