"""The command line as a user runs it, beside a real red-box on a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from redbox.cli import app
from redbox.commands import check, recover
from tests.redbox.http.harness import Stand, standing

Run = Callable[..., Coroutine[Any, Any, Result]]


@pytest.fixture(autouse=True)
def no_log_of_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """They configure the log of their process, which is the tests' here."""
    for command in (check, recover):
        monkeypatch.setattr(command, "configure_log", lambda _: None)


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with standing() as stand:
        yield stand


@pytest.fixture
def redbox(stand: Stand) -> Run:
    """Runs a command as alice, in a thread of its own: the server has this one."""

    async def run(*arguments: str) -> Result:
        environment = {"REDBOX_SOCKET": str(stand.socket), "REDBOX_CONFIG": str(stand.settings)}
        return await asyncio.to_thread(CliRunner().invoke, app, arguments, env=environment)

    return run
