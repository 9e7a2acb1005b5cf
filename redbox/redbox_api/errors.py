"""What can go wrong when one talks to a red-box.

RedboxError
├── Unreachable          no connection, no answer in time, half of one, a stranger: what was done is unknown
└── Refused              red-box answered with a problem document
    ├── NotAuthenticated     401: the token is not good, and why
    ├── NotAllowed           403: no mapping, or not this caller's to do
    ├── NoSuchJob            404
    ├── Conflict             409: the key is taken by another body, or was cancelled before
    ├── TooOld               410: the revision of a watch is no longer known; list, then watch from there
    ├── NotAccepted          422: the request, or Slurm, says that this can never work
    └── Busy                 429 and 503: trying again after `retry_after` seconds is right
"""

from __future__ import annotations

import re

from redbox_api.models import Problem
from redbox_shared.wire import PROBLEMS

STRANGE = "something that is no answer of red-box"
SECONDS = re.compile(r"[0-9]{1,9}")
LONGEST_PAUSE_S = 600.0  # the longest that red-box has its callers wait


class RedboxError(Exception):
    """Base of all that this client raises."""


class Unreachable(RedboxError):
    """No answer: what the server did is unknown; PUT and DELETE may be sent again as they are."""


class Refused(RedboxError):
    """Red-box answered, and the answer is no."""

    def __init__(self, problem: Problem, *, retry_after: float | None = None) -> None:
        super().__init__(f"{problem.title}: {problem.detail}")
        self.problem = problem
        self.retry_after = retry_after

    @property
    def retry(self) -> bool:
        """Whether the same request may succeed later."""
        return self.problem.retry


class NotAuthenticated(Refused):
    """Red-box does not believe who the caller is."""


class NotAllowed(Refused):
    """Red-box knows the caller, and does not let it."""


class NoSuchJob(Refused):
    """There is no such job, or it is somebody else's."""


class Conflict(Refused):
    """The key is taken."""


class TooOld(Refused):
    """The watch must begin anew."""


class NotAccepted(Refused):
    """It can never work as it was asked."""


class Busy(Refused):
    """Later."""


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


def refusal(status: int, body: bytes, retry_after: str | None) -> RedboxError:
    """The exception for an answer that is not a success.

    Only a problem of red-box's own is its word. What a proxy or a stranger at its address answers, such as a
    plain 404 while red-box is restarted, tells nothing of any job.
    """
    try:
        problem = Problem.model_validate_json(body)
    except ValueError:
        problem = None
    if problem is None or not problem.type.startswith(PROBLEMS):
        return Unreachable(f"HTTP {status}, with {STRANGE}")
    return BY_STATUS.get(status, Refused)(problem, retry_after=_seconds(retry_after))


def _seconds(retry_after: str | None) -> float | None:
    """How long to wait, as far as that is sensible; the other form, a date, red-box does not use."""
    if retry_after is None or not SECONDS.fullmatch(retry_after):
        return None
    return min(float(retry_after), LONGEST_PAUSE_S)
