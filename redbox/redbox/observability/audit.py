"""The audit: one line of JSON for each submit, act and refusal, in a file of its own.

The file is opened again on SIGHUP (logrotate). A line that cannot be written is not swallowed: it goes to the
ordinary log, with the reason. Nothing is kept back: what a full disk did not take is not tried again, so that
no later line, nor the closing of the file, fails for it.
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

from redbox.observability.job_audit import Deed
from redbox.observability.request_id import request_id

log = structlog.get_logger("redbox.observability.audit")


class AuditUnusable(Exception):
    """Its file cannot be opened, and nothing is to be done that nobody could trace."""


class AuditFile:
    """Who did what, as whom, with what outcome."""

    def __init__(self, path: Path | None, now: Callable[[], datetime]) -> None:
        self._path = path
        self._now = now
        self._descriptor = self._open()
        self._is_torn = False  # its last line has no end

    def __call__(self, deed: Deed) -> None:
        line = {
            "at": self._now().isoformat(timespec="milliseconds"),
            "request": request_id.get(),
            **asdict(deed),
        }
        if self._descriptor is None:
            log.info("audit", **line)
            return
        try:
            self._write(self._descriptor, json.dumps(line).encode() + b"\n")
        except OSError as error:
            log.exception("audit", **line, audit_file=str(self._path), error=str(error))

    def reopen(self) -> None:
        """Another file has the name now."""
        try:
            opened = self._open()
        except AuditUnusable as error:
            log.error("the old audit file stays open", error=str(error))  # noqa: TRY400
            return
        old, self._descriptor, self._is_torn = self._descriptor, opened, False
        _close(old)

    def close(self) -> None:
        """What is told from now on is in the ordinary log only."""
        old, self._descriptor = self._descriptor, None
        _close(old)

    def _write(self, descriptor: int, line: bytes) -> None:
        """All of it, or OSError; behind a line that was torn in a line of its own."""
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
            raise AuditUnusable(
                f"The audit file {self._path} cannot be opened: {error.strerror}. Its directory must be "
                "there and be red-box's own (audit.file: null has the audit in the log)."
            ) from error


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        with contextlib.suppress(OSError):  # it is closed all the same
            os.close(descriptor)
