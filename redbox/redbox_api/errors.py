"""Errors of requests to a red-box.

RedboxError
├── Unreachable          no (whole) answer in time, or another server's: what was done is unknown
└── Refused              red-box answered with a problem document
    ├── NotAuthenticated     401: the token is not accepted
    ├── NotAllowed           403: no mapping, or this caller may not do this
    ├── NoSuchJob            404
    ├── Conflict             409: another body has the key, or it was cancelled before
    ├── TooOld               410: the revision of a watch is too old; list, then watch from there
    ├── NotAccepted          422: the request can never work, by red-box's rules or Slurm's
    └── Busy                 429 and 503: retry after `retry_after` seconds
"""

from __future__ import annotations

import re
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from redbox_api.models import Problem
from redbox_shared.printable import printable
from redbox_shared.wire import PROBLEMS

AnswerT = TypeVar("AnswerT", bound=BaseModel)
FOREIGN = "the response did not come from red-box"
SECONDS = re.compile(r"[0-9]{1,9}")
LONGEST_SENTENCE = 4096  # of what a server says: it is logged, and in statuses
LONGEST_PAUSE_S = 600.0  # red-box asks for no longer pause


class RedboxError(Exception):
    """Base of all errors of this client."""


class Unreachable(RedboxError):
    """No answer: what the server did is unknown; PUT and DELETE may be repeated unchanged."""


class Refused(RedboxError):
    """Red-box refused the request."""

    def __init__(self, problem: Problem, *, retry_after: float | None = None) -> None:
        super().__init__(printable(f"{problem.title}: {problem.detail}"[:LONGEST_SENTENCE], lines=True))
        self.problem = problem
        self.retry_after = retry_after

    @property
    def detail(self) -> str:
        """The sentence alone, for its user."""
        return printable(self.problem.detail[:LONGEST_SENTENCE], lines=True)

    @property
    def retry(self) -> bool:
        """Whether the same request may succeed later."""
        return self.problem.retry


class NotAuthenticated(Refused):
    """Red-box does not accept the caller's token."""


class NotAllowed(Refused):
    """The caller may not do this."""


class NoSuchJob(Refused):
    """There is no such job, or it belongs to another owner."""


class Conflict(Refused):
    """The key belongs to another request, or was cancelled."""


class TooOld(Refused):
    """The revision of a watch is too old: list again."""


class NotAccepted(Refused):
    """The request can never work."""


class Busy(Refused):
    """The request may succeed later."""


BY_STATUS: dict[int, type[Refused]] = {
    401: NotAuthenticated,
    403: NotAllowed,
    404: NoSuchJob,
    409: Conflict,
    410: TooOld,
    422: NotAccepted,
    429: Busy,
    503: Busy,
}


def parse(form: type[AnswerT], body: bytes, path: str) -> AnswerT:
    """What a success says; a proxy's page may come with 200, too."""
    try:
        return form.model_validate_json(body)
    except ValidationError as error:
        raise foreign_answer(form, error, path) from error


def foreign_answer(form: type[BaseModel], error: ValidationError, path: str, *place: str) -> Unreachable:
    """For an answer that is not of this form: the first error of a field, or of the one at this place."""
    flaw = error.errors(include_url=False, include_input=False)[0]
    words = " ".join([*place, *map(str, flaw["loc"]), flaw["msg"]])[:LONGEST_SENTENCE]
    return Unreachable(f"{path}: {FOREIGN}: it is not a {form.__name__}: {words}")


def refusal(status: int, body: bytes, retry_after: str | None) -> RedboxError:
    """The exception for an answer that is not a success.

    Only problems of red-box's own types count. The answer of a proxy or of another server at its address,
    such as a plain 404 while red-box is restarted, contains nothing about any job.
    """
    try:
        problem = Problem.model_validate_json(body)
    except ValueError:
        problem = None
    if problem is None or not problem.type.startswith(PROBLEMS):
        return Unreachable(f"HTTP {status}: {FOREIGN}")
    return BY_STATUS.get(status, Refused)(problem, retry_after=_seconds(retry_after))


def _seconds(retry_after: str | None) -> float | None:
    """The pause in seconds, bounded; red-box does not use the other form of the header, a date."""
    if retry_after is None or not SECONDS.fullmatch(retry_after):
        return None
    return min(float(retry_after), LONGEST_PAUSE_S)
