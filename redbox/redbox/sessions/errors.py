"""Errors of sessions.

SessionError
├── SessionsBusy     the caller has too many sessions
└── SessionEnded     the session cannot go on, or did not begin: a reason in one word, and a sentence

What is wrong with the job or the caller is an error of `jobs`: refused before the upgrade, or as the status.
"""

from __future__ import annotations


class SessionError(Exception):
    """Base of the errors of this package."""


class SessionsBusy(SessionError):
    """A limit of the caller's is reached; `retry` and `outcome` as for the errors of `jobs`."""

    outcome = "TooMany"
    retry = True
    retry_after = 5.0


class SessionEnded(SessionError):
    """It ended otherwise than by its command's exit."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
