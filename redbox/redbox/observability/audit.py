"""The audit file: one line of JSON for each submit, act and refusal.

The file is opened again on SIGHUP (logrotate). A line that cannot be written goes to the ordinary log, with
the reason, and is not retried: neither the act, nor a later line, nor the closing of the file fails because
of it. Lines are whole: what a full disk took of one is removed again, and where that is not possible, or a
server was killed before it was, the next line begins on a new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
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

    def __init__(
        self, path: Path | None, now: Callable[[], datetime], on_lost: Callable[[], object] = int
    ) -> None:
        """`on_lost` is called for each line that could not be written."""
        self._path = path
        self._now = now
        self._on_lost = on_lost
        self._descriptor = self._open()
        self._is_torn = self._ends_torn()  # the last line was written in part

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
            self._on_lost()
            log.error("audit", **line, audit_file=str(self._path), error=str(error))  # noqa: TRY400 (the error says all)

    def reopen(self) -> None:
        try:
            opened = self._open()
        except AuditFileError as error:
            log.error("the audit file could not be reopened, the old one stays open", error=str(error))  # noqa: TRY400
            return
        old, self._descriptor = self._descriptor, opened
        self._is_torn = self._ends_torn()
        _close(old)

    def close(self) -> None:
        """Close the file: later entries go to the ordinary log."""
        old, self._descriptor = self._descriptor, None
        _close(old)

    def _write(self, descriptor: int, line: bytes) -> None:
        """Write the whole line, or raise OSError and leave nothing of it."""
        whole = left = b"\n" + line if self._is_torn else line
        begin = os.fstat(descriptor).st_size
        try:
            while left:
                left = left[os.write(descriptor, left) :]
        except OSError:
            if len(left) < len(whole):
                self._is_torn = not _shortened(descriptor, begin, len(whole) - len(left)) or self._is_torn
            raise
        self._is_torn = False

    def _ends_torn(self) -> bool:
        """Whether the file's last line has no end: a server was killed, or its disk was full."""
        if self._path is None or self._descriptor is None:
            return False
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return False
        try:
            with self._path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except OSError:  # it may be appended to, and not be read
            return False

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


def _shortened(descriptor: int, begin: int, written: int) -> bool:
    """Whether the part of a line could be removed; not where another program has appended to the file."""
    with contextlib.suppress(OSError):  # not a file, or one that may only grow
        if os.fstat(descriptor).st_size == begin + written:
            os.ftruncate(descriptor, begin)
            return True
    return False


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        with contextlib.suppress(OSError):  # the descriptor is closed all the same
            os.close(descriptor)
