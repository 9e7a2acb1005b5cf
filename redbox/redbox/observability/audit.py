"""The audit file: one line of JSON for each submit, act and refusal.

The file is opened again on SIGHUP (logrotate). A line that cannot be written goes to the ordinary log, with
the reason, and is not retried: neither a later line nor the closing of the file fails because of it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import structlog
from structlog.contextvars import get_contextvars

from redbox.observability.job_audit import AuditEntry

log = structlog.get_logger("redbox.observability.audit")


class AuditFileError(Exception):
    """The audit file cannot be opened, and red-box does nothing without an audit."""


class AuditFile:
    """Appends audit entries to a file, or to the ordinary log if there is no file."""

    def __init__(self, path: Path | None, now: Callable[[], datetime]) -> None:
        self._path = path
        self._now = now
        self._descriptor = self._open()
        self._is_torn = False  # the last line was written in part

    def __call__(self, entry: AuditEntry) -> None:
        line = {
            "at": self._now().isoformat(timespec="milliseconds"),
            "request": get_contextvars().get("request_id", "-"),
            **asdict(entry),
        }
        if self._descriptor is None:
            log.info("audit", **line)
            return
        try:
            self._write(self._descriptor, json.dumps(line).encode() + b"\n")
        except OSError as error:
            log.exception("audit", **line, audit_file=str(self._path), error=str(error))

    def reopen(self) -> None:
        try:
            opened = self._open()
        except AuditFileError as error:
            log.error("the audit file could not be reopened, the old one stays open", error=str(error))  # noqa: TRY400
            return
        old, self._descriptor, self._is_torn = self._descriptor, opened, False
        _close(old)

    def close(self) -> None:
        """Close the file: later entries go to the ordinary log."""
        old, self._descriptor = self._descriptor, None
        _close(old)

    def _write(self, descriptor: int, line: bytes) -> None:
        """Write the whole line or raise OSError; after a partial line, begin a new one."""
        left = b"\n" + line if self._is_torn else line
        while left:
            written = os.write(descriptor, left)
            left = left[written:]
            self._is_torn = bool(left)

    def _open(self) -> int | None:
        if self._path is None:
            return None
        try:
            return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise AuditFileError(
                f"The audit file {self._path} cannot be opened: {error.strerror}. Its directory must exist "
                "and be owned by red-box's account (audit.file: null writes the audit to the log)."
            ) from error


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        with contextlib.suppress(OSError):  # the descriptor is closed all the same
            os.close(descriptor)
