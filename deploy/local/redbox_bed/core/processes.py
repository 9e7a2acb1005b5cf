"""Processes of the machine by pid *and* start time: a pid given out again is not taken for the old one."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from redbox_bed.core.errors import BedError
from redbox_bed.core.whole_files import write_whole

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Process:
    """One process of the machine, for as long as it lives."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Return the process that has this pid now, or None if it does not exist or is a zombie.

        While a process of many threads ends, its first may be a zombie and others still hold its sockets.
        """
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, *rest = stat.rpartition(")")[2].split()
        has_ended = state == "X" or (state == "Z" and not _has_other_threads(pid))
        return None if has_ended else cls(pid, int(rest[18]))

    @classmethod
    def load(cls, path: Path) -> Process | None:
        """The process that was saved there, if it still lives."""
        try:
            pid, started = (int(word) for word in path.read_text().split())
        except (FileNotFoundError, ValueError):
            return None
        saved = cls(pid, started)
        return saved if saved.alive() else None

    def save(self, path: Path) -> None:
        write_whole(path, f"{self.pid} {self.started}\n".encode())

    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def send(self, number: int) -> None:
        """Signal it. A process that has already ended is not an error."""
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def wait_until_gone(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                raise BedError(f"process {self.pid} is still running {seconds:.0f} s after SIGTERM")
            time.sleep(_POLL_SECONDS)

    def kill(self, number: int = signal.SIGKILL, seconds: float = 10) -> None:
        self.send(number)
        self.wait_until_gone(seconds)


def _has_other_threads(pid: int) -> bool:
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def inner_pid(outer: int) -> int | None:
    """The pid of a process as its own pid namespace counts."""
    pids = _pids_by_namespace(outer)
    return pids[-1] if pids else None


def is_in_namespace(outer: int) -> bool:
    """Whether it is in another pid namespace than ours."""
    return len(_pids_by_namespace(outer)) > 1


def _pids_by_namespace(outer: int) -> list[int]:
    """The process's pids, from our namespace inwards."""
    try:
        status = Path(f"/proc/{outer}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return [int(word) for word in line.split()[1:]]
    return []


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def boot_offset(pid: int) -> int:
    """By how many ticks the clock of a process's time namespace is ahead of ours (a new host's: behind)."""
    try:
        offsets = Path(f"/proc/{pid}/timens_offsets").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in offsets.splitlines():
        clock, seconds, _ = line.split()
        if clock in {"boottime", "7"}:
            return int(seconds) * TICKS_PER_SECOND
    return 0
