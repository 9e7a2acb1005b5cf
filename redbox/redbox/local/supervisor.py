"""The process that runs one local job: python -m redbox.local.supervisor DIRECTORY.

It is in a session of its own and needs no server: it starts the job's script in another session, waits for
its end or its time limit, and writes down how it ended, complete or not at all. SIGTERM to it is a cancel:
the script and its children get SIGTERM, then SIGKILL.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

GRACE_S = 5.0
STARTED, ENDED, JOB, SCRIPT = "started.json", "ended.json", "job.json", "script"


def write_whole(path: Path, value: dict[str, Any]) -> None:
    """Write a file complete or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.replace(path)


def process_start(pid: int) -> str | None:
    """When a process started, which with its pid tells it from all others; None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class Supervised:
    """The running script."""

    def __init__(self, directory: Path, job: dict[str, Any]) -> None:
        self.cancelled = False
        self.timed_out = False
        self._ends_at = time.monotonic() + job["time_limit_s"] if job["time_limit_s"] else None
        stdout = open_output(job["stdout"])
        stderr = stdout if job["stderr"] == job["stdout"] else open_output(job["stderr"])
        self._process = subprocess.Popen(
            [str(directory / SCRIPT)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=job["working_directory"],
            env=job["env"],
            start_new_session=True,
        )
        self.pid = self._process.pid

    def cancel(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        self.cancelled = True

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        while True:
            try:
                return self._process.wait(timeout=0.1)
            except subprocess.TimeoutExpired:
                self.timed_out = self._ends_at is not None and time.monotonic() > self._ends_at
            if self.cancelled or self.timed_out:
                return self._end()

    def _end(self) -> int:
        self.send(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=GRACE_S)
        self.send(signal.SIGKILL)  # what the script left behind too
        return self._process.wait()

    def send(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return


def open_output(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)


def supervise(directory: Path) -> None:
    """Run the job of this directory to its end."""
    job = json.loads((directory / JOB).read_text())
    try:
        script = Supervised(directory, job)
    except OSError as error:  # no such interpreter, no place for the output
        write_whole(directory / ENDED, {"state": "FAILED", "reason": str(error), "at": time.time()})
        return
    signal.signal(signal.SIGTERM, script.cancel)
    me, it = os.getpid(), script.pid
    started = {"supervisor": [me, process_start(me)], "script": [it, process_start(it)], "at": time.time()}
    write_whole(directory / STARTED, started)
    code = script.wait()
    state = (
        "CANCELLED"
        if script.cancelled
        else "TIMEOUT"
        if script.timed_out
        else "FAILED"
        if code
        else "COMPLETED"
    )
    write_whole(directory / ENDED, {"state": state, "code": code, "at": time.time()})


if __name__ == "__main__":
    supervise(Path(sys.argv[1]))
