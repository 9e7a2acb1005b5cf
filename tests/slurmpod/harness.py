"""Waiting for what another process does, and a daemon under the supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.slurmpod.kubelet import project

HERE = Path(__file__).parent
SUPERVISE = str(HERE / "supervise.py")
WITHIN_S = 60
Value = TypeVar("Value")


def wait_for(value: Callable[[], Value]) -> Value:
    """The first value that is true."""
    deadline = time.monotonic() + WITHIN_S
    while not (found := value()):
        assert time.monotonic() < deadline, "what the test waits for did not come"
        time.sleep(0.01)
    return found


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - what it waits for sets no event
            await asyncio.sleep(0.01)


class Supervised:
    """`fake_daemon.py` under the supervisor; its diary has what its processes did, in order."""

    def __init__(self, folder: Path, *, restarts: bool, settled_s: float = 60) -> None:
        self.folder = folder
        self.diary = folder / "diary"
        self.diary.touch()
        self.keys = folder / "keys"
        project(self.keys, {"slurm.jwks": b"first"})
        self.program = folder / "daemon"
        self.allow_starts()
        self.when_ready = folder / "when-ready"
        self.when_ready.write_text(
            f"#!/bin/sh\ntouch {folder}/ready\necho $REDBOX_KEYS >>{folder}/reported\n"
        )
        self.when_ready.chmod(0o755)
        command = [str(self.program), str(HERE / "fake_daemon.py"), str(self.diary)]
        how = "restarts" if restarts else "ends"
        self.process = subprocess.Popen(
            [sys.executable, SUPERVISE, str(folder), how, str(settled_s), *command],
            stderr=(folder / "log").open("w"),
        )

    def allow_starts(self) -> None:
        """Without its program the daemon cannot be started."""
        self.program.symlink_to(Path(sys.executable).resolve())

    def entries(self, text: str) -> list[int]:
        """The processes that wrote this, in order."""
        rows = (line.split(" ", 1) for line in self.diary.read_text().splitlines())
        return [int(pid) for pid, entry in rows if entry == text]

    def wait_for(self, text: str, times: int = 1) -> list[int]:
        return wait_for(lambda: pids if len(pids := self.entries(text)) >= times else [])

    @property
    def is_reported(self) -> bool:
        """Whether `when_ready` was run."""
        return (self.folder / "reported").exists()

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(timeout=WITHIN_S)

    def clean(self) -> None:
        self.process.kill()
        self.process.wait()
        for line in self.diary.read_text().splitlines():
            pid = int(line.split()[0])
            if str(self.diary).encode() in cmdline(pid):
                os.kill(pid, signal.SIGKILL)


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
