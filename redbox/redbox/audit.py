"""The audit: one line of JSON for each submit, act and refusal, in a file of its own.

The file is opened again on SIGHUP (logrotate). A line that cannot be written is not swallowed: it goes to the
ordinary log, with the reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TextIO

import structlog

from redbox.jobs.audit import Deed
from redbox.request_id import request_id

log = structlog.get_logger("redbox.audit")


class AuditUnusable(Exception):
    """Its file cannot be opened, and nothing is to be done that nobody could trace."""


class AuditFile:
    """Who did what, as whom, with what outcome."""

    def __init__(self, path: Path | None, now: Callable[[], datetime]) -> None:
        self._path = path
        self._now = now
        self._file = self._open()

    def __call__(self, deed: Deed) -> None:
        line = {
            "at": self._now().isoformat(timespec="milliseconds"),
            "request": request_id.get(),
            **asdict(deed),
        }
        if self._file is None:
            log.info("audit", **line)
            return
        try:
            self._file.write(json.dumps(line) + "\n")
        except OSError as error:
            log.exception("audit", **line, audit_file=str(self._path), error=str(error))

    def reopen(self) -> None:
        """Another file has the name now."""
        try:
            opened = self._open()
        except AuditUnusable as error:
            log.error("the old audit file stays open", error=str(error))  # noqa: TRY400
            return
        self.close()
        self._file = opened

    def close(self) -> None:
        """Nothing more is told."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> TextIO | None:
        if self._path is None:
            return None
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise AuditUnusable(
                f"The audit file {self._path} cannot be opened: {error.strerror}. Its directory must be "
                "there and be red-box's own (audit.file: null has the audit in the log)."
            ) from error
        return os.fdopen(descriptor, "a", buffering=1, encoding="utf-8")
