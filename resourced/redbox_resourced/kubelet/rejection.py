"""Why a request to the kubelet API is not served."""

from __future__ import annotations

from http import HTTPStatus


class RequestRejected(Exception):
    """The request cannot be served; the message says why, and what to do instead."""

    def __init__(self, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.status = status


def why(error: BaseException) -> str:
    """A TimeoutError has no message."""
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
