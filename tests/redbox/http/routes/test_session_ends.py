"""How sessions end from the server's side: what their clients get, and what the audit has."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from typing import Any

import pytest

from redbox.core.workload_manager import ActionResult
from redbox.sessions import watches
from redbox.sessions.settings import ExecSettings
from redbox_api.sessions.client import SessionData, open_exec
from redbox_api.sessions.forward import open_forward
from redbox_api.sessions.parts import ExecRequest
from tests.redbox.http.harness import Stand, eventually, standing
from tests.redbox.http.routes.harness import collect, run, running
from tests.redbox.http.routes.test_session_tokens import session_by_tokens, token_that_lives


@pytest.mark.parametrize("command", [("cat",), ("sleep", "611.25")], ids=["reads", "reads nothing"])
async def test_a_red_box_that_stops_says_so_to_clients_and_in_the_audit(command: tuple[str, ...]) -> None:
    async with AsyncExitStack() as clients:
        async with standing(exec_settings=ExecSettings(enabled=True)) as stand:
            await running(stand)
            client = await clients.enter_async_context(stand.client())
            request = ExecRequest(command=command)
            session = await clients.enter_async_context(open_exec(client, "k1", request))
            flood = asyncio.create_task(session.send(bytes(10_000_000)))
            forward = await clients.enter_async_context(open_forward(client, "k1"))
            await eventually(lambda: stand.services.sessions.count == 2)
            reading = asyncio.create_task(collect(session))
        _, _, status = await reading
        flood.cancel()
        await eventually(lambda: forward.failure is not None)
    assert (status.reason, "is restarted" in status.message) == ("ServiceUnavailable", True)
    assert forward.failure is not None
    assert forward.failure.reason == "ServiceUnavailable"
    assert "is restarted" in stand.audited[-1].detail


async def test_the_end_of_a_token_before_a_command_begins_is_no_client_that_has_gone(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def step_that_slurm_does_not_name(*_: object) -> list[str]:
        await asyncio.Future()
        return []

    monkeypatch.setattr(stand.services.sessions._relays, "_step_command", step_that_slurm_does_not_name)
    async with session_by_tokens(stand, token_that_lives(600)) as session:
        await eventually(lambda: bool(stand.audited))
        stand.callers_clock.ahead_s = 1800
        _, _, status = await collect(session)
    assert status.reason == "NotAuthorized"
    assert "no longer authorized" in stand.audited[-1].detail


async def test_a_step_that_slurm_refuses_is_reported_after_one_poll(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused_step(*_: object) -> list[str]:
        return ["/bin/sh", "-c", "echo srun: error: Unable to create step for job 7 >&2; exit 1"]

    monkeypatch.setattr(watches, "SHOWN_S", 600)
    monkeypatch.setattr(stand.services.sessions._relays, "_step_command", refused_step)
    await running(stand)
    async with stand.client() as client:
        _, _, status = await run(client, "true")
    assert status.reason == "RelayLost"
    assert status.message.startswith("The session on node n1 could not begin: ")
    assert status.message.endswith(" Unable to create step for job 7.")


async def test_a_relay_that_ends_by_a_cancel_that_red_box_carries_out_is_the_end_of_the_job(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "SHOWN_S", 600)
    await running(stand)
    act = stand.slurm.act

    async def act_late(*words: Any, **more: Any) -> ActionResult:
        await asyncio.sleep(1)
        return await act(*words, **more)

    monkeypatch.setattr(stand.slurm, "act", act_late)
    request = ExecRequest(command=("/bin/sh", "-c", "echo $PPID; exec sleep 612.25"))
    async with stand.client() as client, open_exec(client, "k1", request) as session:
        event = await session.receive()
        assert isinstance(event, SessionData)
        async with stand.at_socket() as http:
            assert (await http.delete("/v1/jobs/k1")).is_success
        os.kill(int(event.data), signal.SIGKILL)
        _, _, status = await collect(session)
    assert status.reason == "JobEnded"
