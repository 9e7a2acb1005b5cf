"""What can go wrong when one talks to a red-box.

RedboxError
├── Unreachable          no connection, no answer in time, a broken answer: nobody knows what the server did
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

from http import HTTPStatus

from redbox_api.models import Problem


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


def refusal(status: int, body: bytes, retry_after: str | None) -> Refused:
    """The exception for an answer that is not a success, whatever its body turns out to be."""
    try:
        problem = Problem.model_validate_json(body)
    except ValueError:
        text = body[:500].decode("utf-8", "replace").strip()
        problem = Problem(
            type="about:blank",
            title=f"HTTP {status}",
            status=status,
            detail=text or "no explanation",
            retry=status >= HTTPStatus.INTERNAL_SERVER_ERROR,
        )
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
    return BY_STATUS.get(status, Refused)(problem, retry_after=seconds)
