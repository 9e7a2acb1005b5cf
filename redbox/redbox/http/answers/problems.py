"""Every refusal as one RFC 9457 document: the kind of problem, the reason, and whether a retry can succeed.

HttpProblem
├── UnauthorizedProblem         401
├── ForbiddenProblem            403
├── NotFoundProblem             404
├── RequestTimeoutProblem       408
├── ConflictProblem             409
├── GoneProblem                 410
├── ContentTooLargeProblem      413
├── RangeNotSatisfiableProblem  416
├── UnprocessableProblem        422
├── TooManyRequestsProblem      429
├── InternalErrorProblem        500
└── UnavailableProblem          503

The classes have the names of the statuses. The `type` of a problem ends in a slug that never changes its
meaning; `detail` may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from redbox.http.answers.validation_messages import validation_message
from redbox.observability.sanitize import encodable
from redbox_api.models import Problem
from redbox_shared.printable import printable
from redbox_shared.wire import PROBLEMS

MEDIA_TYPE = "application/problem+json"


class HttpProblem(HTTPException):
    """Base: the class is the kind of problem, the instance says what happened."""

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
        return Problem(
            type=PROBLEMS + self.slug,
            title=self.title,
            status=self.status,
            detail=printable(encodable(self.detail), lines=True),
            retry=self.retry,
            request_id=request_id,
        )


class UnauthorizedProblem(HttpProblem):
    """The caller's identity is not proved."""

    status, slug, title = HTTPStatus.UNAUTHORIZED, "not-authenticated", "The caller is not known"


class ForbiddenProblem(HttpProblem):
    """The caller is authenticated, and not authorized."""

    status, slug, title = HTTPStatus.FORBIDDEN, "not-allowed", "The caller may not do this"


class NotFoundProblem(HttpProblem):
    """The resource does not exist, or belongs to another caller."""

    status, slug, title = HTTPStatus.NOT_FOUND, "not-found", "There is no such thing"


class RequestTimeoutProblem(HttpProblem):
    """The rest of the request's body did not arrive in time."""

    status, slug, title, retry = HTTPStatus.REQUEST_TIMEOUT, "too-slow", "The request came too slowly", True


class ConflictProblem(HttpProblem):
    """The key belongs to another request, or to a deleted job."""

    status, slug, title = HTTPStatus.CONFLICT, "taken", "The key is taken"


class GoneProblem(HttpProblem):
    """A watch's revision is no longer kept here, or never was."""

    status, slug, title = HTTPStatus.GONE, "too-old", "The revision is not known"


class ContentTooLargeProblem(HttpProblem):
    """More bytes than the settings allow."""

    status, slug, title = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", "The request is too large"


class RangeNotSatisfiableProblem(HttpProblem):
    """The range begins after the file's last byte."""

    status, slug, title = (
        HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
        "no-such-range",
        "There is no such range",
    )


class UnprocessableProblem(HttpProblem):
    """The request can never succeed as it is."""

    status, slug, title = HTTPStatus.UNPROCESSABLE_ENTITY, "not-accepted", "This cannot work"


class TooManyRequestsProblem(HttpProblem):
    """A limit of this caller, or of all callers, is reached."""

    status, slug, title, retry = HTTPStatus.TOO_MANY_REQUESTS, "too-many", "Too many requests", True


class InternalErrorProblem(HttpProblem):
    """A defect of red-box."""

    status, slug, title, retry = HTTPStatus.INTERNAL_SERVER_ERROR, "broken", "Red-box has a defect here", True


class UnavailableProblem(HttpProblem):
    """Red-box, Slurm or an agent cannot handle the request now."""

    status, slug, title, retry = HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "Not now", True


BY_STATUS: dict[int, type[HttpProblem]] = {kind.status: kind for kind in HttpProblem.__subclasses__()}


def problem_response(problem: HttpProblem, request_id: str) -> Response:
    headers = dict(problem.headers or {})
    if problem.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(problem.retry_after)))
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    body = problem.document(request_id).model_dump(mode="json", by_alias=True)
    return JSONResponse(body, problem.status, headers, media_type=MEDIA_TYPE)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return a route's `responses` for these problems; `openapi` adds their schema."""
    return {status: {"description": BY_STATUS[status].title + "."} for status in statuses}


def as_problem(error: HTTPException) -> HttpProblem:
    """Convert a refusal of the framework (no such route, a method that is not allowed)."""
    if isinstance(error, HttpProblem):
        return error
    if error.status_code == HTTPStatus.BAD_REQUEST:  # FastAPI's status for a body that is not text
        return UnprocessableProblem("the body is not JSON in UTF-8")
    detail = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = "there is nothing at this path; /openapi.json lists all paths"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"this path takes only {(error.headers or {}).get('Allow', 'other methods')}"
    return _framework_problem(error.status_code)(detail, headers=error.headers)


def _framework_problem(status: int) -> type[HttpProblem]:
    if status in BY_STATUS:
        return BY_STATUS[status]
    phrase = HTTPStatus(status)
    return type(
        "FrameworkProblem", (HttpProblem,), {"status": phrase, "slug": "http", "title": phrase.phrase}
    )


def validation_problem(error: RequestValidationError) -> UnprocessableProblem:
    return UnprocessableProblem(validation_message(error.errors()))
