"""`redbox exec` as a user types it, also where its own streams are closed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from redbox.commands.sessions import run
from redbox.sessions.settings import ExecSettings
from redbox_api.sessions.parts import ExecRequest, SessionStatus
from tests.redbox.http.harness import Stand, standing
from tests.redbox.http.routes.harness import running


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with standing(exec_settings=ExecSettings(enabled=True)) as stand:
        await running(stand)
        yield stand


async def shell(stand: Stand, line: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a line in which $REDBOX is the program."""
    ended = await asyncio.to_thread(
        subprocess.run,
        ["/bin/sh", "-c", line],
        env={"REDBOX": f"{sys.executable} -m redbox", "REDBOX_SOCKET": str(stand.socket), **PATHS},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


FULL = "redbox: the output cannot be written: No space left on device\n"
PATHS = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("echo piped | $REDBOX exec -i k1 -- cat", (0, "piped\n", "")),
        ("$REDBOX exec -i k1 -- cat <&-", (0, "", "")),
        ("$REDBOX exec -it k1 -- cat <&-", (0, "", "")),
        ("$REDBOX exec k1 -- sh -c 'echo nowhere; echo there >&2; exit 3' >&-", (3, "", "there\n")),
        ("$REDBOX exec k1 -- yes | head -n 1", (0, "y\n", "")),
        ("$REDBOX exec k1 -- echo lost >/dev/full", (1, "", FULL)),
        ("$REDBOX jobs >/dev/full", (1, "", FULL)),
    ],
)
async def test_streams_are_those_of_the_command_line(
    stand: Stand, line: str, outcome: tuple[int, str, str]
) -> None:
    assert await shell(stand, line) == outcome


class EndingSession:
    """A command that has ended while its input waits to be sent."""

    def __init__(self) -> None:
        self.is_sending = asyncio.Event()

    async def send(self, _: bytes) -> None:
        self.is_sending.set()
        await asyncio.Event().wait()

    async def close_input(self) -> None:
        raise AssertionError

    async def receive(self) -> SessionStatus:
        await self.is_sending.wait()
        return SessionStatus(status="Success")


def test_input_that_the_command_did_not_take_is_dropped_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def open_exec(*_: object, **__: object) -> AsyncIterator[EndingSession]:
        yield EndingSession()

    said: list[object] = []
    monkeypatch.setattr(run, "open_exec", open_exec)
    monkeypatch.setattr(run, "next_input", lambda: b"y\n")
    monkeypatch.setattr(threading, "excepthook", said.append)
    before = {*threading.enumerate()}
    request = ExecRequest(command=("head",), stdin=True)
    asyncio.run(run.run_session(cast("Any", None), "k1", request, 1))
    for thread in {*threading.enumerate()} - before:
        thread.join(60)
        assert not thread.is_alive()
    assert not said
