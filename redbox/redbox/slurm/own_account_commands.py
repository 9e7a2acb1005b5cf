"""Slurm's read-only commands as red-box's own account, where it runs on a login node.

No agent could run them: agents refuse accounts below min_uid, as red-box's is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence

from redbox.agents.protocol.answers import CommandResult

DIRECTORIES = "/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin:/usr/local/sbin:/usr/sbin:/sbin"
NOT_FOUND = 127
CHUNK = 256 * 1024
OUTPUT_LIMIT = 32 * 1024 * 1024


class OwnAccountCommands:
    """Runs commands as this process's own account."""

    def __init__(self, directories: str = DIRECTORIES) -> None:
        self._directories = directories

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float,
        env: Mapping[str, str] | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> CommandResult:
        """Run a command without stdin; on the deadline it is killed with all its children."""
        started = time.monotonic()
        program = shutil.which(argv[0], path=self._directories)
        if program is None:
            return CommandResult(NOT_FOUND, b"", f"{argv[0]}: not found in {self._directories}".encode(), 0.0)
        process = await asyncio.create_subprocess_exec(
            program,
            *argv[1:],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(env or {}),
            cwd="/",
            start_new_session=True,
        )
        outputs = (LimitedOutput(output_limit), LimitedOutput(output_limit))
        timed_out = False
        try:
            async with asyncio.timeout(deadline):
                await asyncio.gather(*(map(LimitedOutput.fill, outputs, (process.stdout, process.stderr))))
                await process.wait()
        except TimeoutError:
            timed_out = True
        finally:
            await _end(process)
        code = process.returncode if process.returncode is not None else -signal.SIGKILL
        stdout, stderr = (bytes(output.data) for output in outputs)
        cut = any(output.cut for output in outputs)
        return CommandResult(code, stdout, stderr, time.monotonic() - started, timed_out, cut)


class LimitedOutput:
    """The output of a command on one descriptor, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self.cut = False
        self._limit = limit

    async def fill(self, stream: asyncio.StreamReader | None) -> None:
        """Read to the end; bytes beyond the limit are dropped."""
        while stream is not None and (data := await stream.read(CHUNK)):
            room = self._limit - len(self.data)
            self.cut = self.cut or len(data) > room
            self.data += data[: max(0, room)]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill its session, if it still runs, and reap it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
