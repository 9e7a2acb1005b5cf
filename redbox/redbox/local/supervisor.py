"""The process that runs one local job: python -m redbox.local.supervisor DIRECTORY.

It runs in a session of its own, independent of the server: it starts the job's script in another session,
waits for its end or its time limit, and writes ended.json. SIGTERM to the supervisor cancels the job: the
script and its children get SIGTERM, then SIGKILL.
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

from redbox.agents.program.command_records import process_start

GRACE_S = 5.0
STARTED, ENDED, JOB, SCRIPT = "started.json", "ended.json", "job.json", "script"


def write_atomically(path: Path, value: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.replace(path)


class RunningScript:
    """The script of the job, in a session of its own."""

    def __init__(self, directory: Path, job: dict[str, Any]) -> None:
        self.cancelled = False
        self.timed_out = False
        self._ends_at = time.monotonic() + job["time_limit_s"] if job["time_limit_s"] else None
        stdout = open_output(job["stdout"])
        stderr = stdout if job["stderr"] == job["stdout"] else open_output(job["stderr"])
        self._process = subprocess.Popen(
            [str(directory / SCRIPT), *job.get("arguments", ())],
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
        """The exit code, negative for a signal."""
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
        self.send(signal.SIGKILL)  # also to children that the script left behind
        return self._process.wait()

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def open_output(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)


def supervise(directory: Path) -> None:
    job = json.loads((directory / JOB).read_text())
    try:
        script = RunningScript(directory, job)
    except OSError as error:  # the interpreter is missing, or the output cannot be opened
        write_atomically(directory / ENDED, {"state": "FAILED", "reason": str(error), "at": time.time()})
        return
    signal.signal(signal.SIGTERM, script.cancel)
    supervisor, child = ([pid, process_start(pid)] for pid in (os.getpid(), script.pid))
    started = {"supervisor": supervisor, "script": child, "at": time.time()}
    write_atomically(directory / STARTED, started)
    code = script.wait()
    state = "FAILED" if code else "COMPLETED"
    if script.cancelled or script.timed_out:
        state = "CANCELLED" if script.cancelled else "TIMEOUT"
    write_atomically(directory / ENDED, {"state": state, "code": code, "at": time.time()})


if __name__ == "__main__":
    supervise(Path(sys.argv[1]))
