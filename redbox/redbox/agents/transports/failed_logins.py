"""Which logins have failed of late: in a file beside the journal, which outlives the process.

fail2ban counts on the login node, and knows nothing of restarts: a pod that is replaced, and `redbox check`
beside a server, count with what failed before. Where the file cannot be written, a process counts for itself.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

FILE = "failed-logins"
"""In the journal's directory."""
LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class FailedLogins:
    """How many may fail in which time; fail2ban's defaults ban at 5 in 10 minutes."""

    most: int = 4
    within_s: float = 600.0
    file: Path | None = None
    """Where they are recorded for other processes."""


@dataclass(frozen=True, slots=True)
class FailedLogin:
    """One of them; the time is that of all processes, in seconds since the epoch."""

    at: float
    credential: str
    reason: str


@dataclass
class FailedLoginRecord:
    """Those that count."""

    allowed: FailedLogins
    clock: Callable[[], float]
    _in_memory: list[FailedLogin] = field(default_factory=list)  # those that the file does not have

    def recent(self) -> Sequence[FailedLogin]:
        """The oldest first."""
        found = list(self._in_memory)
        if self.allowed.file is not None:
            with suppress(OSError):
                found += _parsed(self.allowed.file.read_bytes())
        return sorted(self._within_time(found), key=lambda login: login.at)

    def add(self, credential: str, reason: str) -> None:
        login = FailedLogin(self.clock(), credential, reason[:LONGEST_REASON])
        self._in_memory = self._within_time(self._in_memory)
        try:
            self._write(login)
        except OSError:
            self._in_memory.append(login)

    def _write(self, login: FailedLogin) -> None:
        path = self.allowed.file
        if path is None:
            self._in_memory.append(login)
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # held for as long as this takes
            if os.geteuid() == 0:  # `redbox check` as root: the server has to read it
                owner = path.parent.stat()
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            kept = [*self._within_time(_parsed(file.read())), login]
            file.seek(0)
            file.truncate()
            file.write(b"".join(map(_line, kept)))

    def _within_time(self, logins: Sequence[FailedLogin]) -> list[FailedLogin]:
        """Those of the future do not count: the clock was set back, and they would do so for too long."""
        now = self.clock()
        return [login for login in logins if now - self.allowed.within_s < login.at <= now]


def _line(login: FailedLogin) -> bytes:
    return json.dumps([login.at, login.credential, login.reason]).encode() + b"\n"


def _parsed(content: bytes) -> list[FailedLogin]:
    found: list[FailedLogin] = []
    for line in content.splitlines():
        with suppress(ValueError, TypeError):  # torn by a crash
            at, credential, reason = json.loads(line)
            found.append(FailedLogin(float(at), str(credential), str(reason)))
    return found
