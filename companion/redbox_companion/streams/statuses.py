"""How red-box says that a session, a connection or a forward has ended."""

from __future__ import annotations

import json
from typing import Any


class RemoteEnded(Exception):
    """Red-box ended it: the reason and the message of its Status, and the exit code if a command had one."""

    def __init__(self, reason: str, message: str, exit_code: int | None = None) -> None:
        super().__init__(message or reason)
        self.reason = reason
        self.exit_code = exit_code


def failure_of(raw: bytes) -> RemoteEnded | None:
    """The failure that red-box reports at the end of a connection; None for Success."""
    try:
        status: Any = json.loads(raw)
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, dict):
        return RemoteEnded(
            "Unreadable", "red-box ended the connection with a status that is not a JSON object"
        )
    if status.get("status") == "Success":
        return None
    return RemoteEnded(str(status.get("reason", "")), str(status.get("message", "")), exit_code_of(status))


def exit_code_of(status: dict[str, Any]) -> int | None:
    try:
        causes = status["details"]["causes"]
        return next(int(cause["message"]) for cause in causes if cause["reason"] == "ExitCode")
    except (KeyError, TypeError, ValueError, StopIteration):
        return None
