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

from redbox.agents.program.guard import DEFAULT_PATH
from redbox.agents.protocol.answers import CommandResult

NOT_FOUND = 127
CHUNK = 256 * 1024
OUTPUT_LIMIT = 32 * 1024 * 1024


class OwnAccountCommands:
    """Runs commands as this process's own account."""

    def __init__(self, directories: str = DEFAULT_PATH) -> None:
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
        assert process.stdout is not None  # noqa: S101 # PIPE, for the type checker
        assert process.stderr is not None  # noqa: S101
        stdout, stderr = bytearray(), bytearray()
        timed_out = False
        try:
            async with asyncio.timeout(deadline):
                await asyncio.gather(
                    _collect(process.stdout, stdout, output_limit),
                    _collect(process.stderr, stderr, output_limit),
                )
                await process.wait()
        except TimeoutError:
            timed_out = True
        finally:
            await _end(process)
        code = process.returncode if process.returncode is not None else -signal.SIGKILL
        truncated = max(len(stdout), len(stderr)) > output_limit
        del stdout[output_limit:], stderr[output_limit:]
        took_s = time.monotonic() - started
        return CommandResult(code, bytes(stdout), bytes(stderr), took_s, timed_out, truncated)


async def _collect(stream: asyncio.StreamReader, output: bytearray, limit: int) -> None:
    """Read to the end; beyond the limit one byte is kept, which shows that there were more."""
    while data := await stream.read(CHUNK):
        output += data[: limit + 1 - len(output)]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill its session, if it still runs, and reap it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
