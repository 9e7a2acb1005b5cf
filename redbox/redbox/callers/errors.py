"""Errors of callers.

CallersError
├── AuthenticationError             a caller is not admitted
│   ├── Unauthenticated                 401: the proof of identity is missing or wrong; `fault` for metrics
│   ├── NotMapped                       403: the identity is proved, and no rule maps it to a user
│   └── AuthenticationUnavailable       503: a key set, TokenReview or NSS does not answer
├── ApiServerUnavailable            an API server or a JWKS file cannot be read
├── InvalidKeySet                   a JWKS document without a usable key
├── TokenFileError                  the file of opaque tokens cannot be used
└── TokenNotFound                   there is no opaque token of this id
"""

from __future__ import annotations

from enum import StrEnum


class TokenFault(StrEnum):
    """The fault of a proof of identity, for metrics and audit lines."""

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


class CallersError(Exception):
    """Base of all errors of this package."""


class AuthenticationError(CallersError):
    """A caller is not admitted; `retry`: the same request may succeed later."""

    retry: bool = False
    retry_after_s: float | None = None


class Unauthenticated(AuthenticationError):
    """The proof of identity is missing or wrong."""

    def __init__(self, fault: TokenFault, detail: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.fault = fault
        self.retry_after_s = retry_after_s
        self.retry = retry_after_s is not None


class NotMapped(AuthenticationError):
    """The identity is proved, and no mapping rule maps it to a user."""

    def __init__(self, identity: str, reason: str) -> None:
        super().__init__(f"{identity} may not use this red-box: {reason}")
        self.identity = identity
        self.reason = reason


class AuthenticationUnavailable(AuthenticationError):
    """A service that the authentication depends on does not answer."""

    retry = True

    def __init__(self, detail: str, *, retry_after_s: float = 5.0) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class ApiServerUnavailable(CallersError):
    """A source of keys or the API server does not answer with success."""


class InvalidKeySet(CallersError):
    """The document holds no key that can verify a token."""


class TokenFileError(CallersError):
    """The file of tokens cannot be used; the message has its path and the reason."""


class TokenNotFound(CallersError):
    """There is no token of this id."""
