"""`redbox exec` as a user types it, also where its own streams are closed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from redbox.sessions.settings import ExecSettings
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


PATHS = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("echo piped | $REDBOX exec -i k1 -- cat", (0, "piped\n", "")),
        ("$REDBOX exec -i k1 -- cat <&-", (0, "", "")),
        ("$REDBOX exec -it k1 -- cat <&-", (0, "", "")),
        ("$REDBOX exec k1 -- sh -c 'echo nowhere; echo there >&2; exit 3' >&-", (3, "", "there\n")),
        ("$REDBOX exec k1 -- yes | head -n 1", (0, "y\n", "")),
    ],
)
async def test_streams_are_those_of_the_command_line(
    stand: Stand, line: str, outcome: tuple[int, str, str]
) -> None:
    assert await shell(stand, line) == outcome
