"""Why a caller was not let in.

CallerError
├── Unauthenticated      401: the proof is missing or wrong; `fault` says in one word what, for metrics
├── NotMapped            403: the identity is proved, and no rule makes a user of it
└── CannotTell           503: whoever must be asked (key set, TokenReview, NSS) does not answer
"""

from __future__ import annotations

from enum import StrEnum


class AuthenticationFault(StrEnum):
    """What is wrong with a proof of identity: few words, for metrics and audit lines."""

    MISSING = "missing"
    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown-key"
    SIGNATURE = "signature"
    AMBIGUOUS = "ambiguous-cluster"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    EXPIRED = "expired"
    NOT_YET = "not-yet-valid"
    LIVES_TOO_LONG = "lives-too-long"
    CLAIMS = "claims"
    REVOKED = "revoked"


class AuthenticationError(Exception):
    """A caller was not let in. `retry` says whether the same request may succeed later."""

    status: int
    retry: bool = False
    retry_after_s: float | None = None


class Unauthenticated(AuthenticationError):
    """The proof of identity is missing or wrong."""

    status = 401

    def __init__(
        self, fault: AuthenticationFault, detail: str, *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(detail)
        self.fault = fault
        self.retry_after_s = retry_after_s
        self.retry = retry_after_s is not None


class NotMapped(AuthenticationError):
    """The identity is proved, but the administrator's rules make nothing of it."""

    status = 403

    def __init__(self, identity: str, reason: str) -> None:
        super().__init__(f"{identity} may not use this red-box: {reason}")
        self.identity = identity
        self.reason = reason


class AuthenticationUnavailable(AuthenticationError):
    """Whether the caller may come in is known only by somebody who does not answer now."""

    status = 503
    retry = True

    def __init__(self, detail: str, *, retry_after_s: float = 5.0) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
