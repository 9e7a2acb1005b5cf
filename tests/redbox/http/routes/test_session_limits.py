"""Who may open sessions, how many and how fast, and what the audit says of each."""

from __future__ import annotations

import json

import pytest

from redbox.core.domain import Role
from redbox.sessions.settings import ExecSettings
from redbox_api.errors import Busy, Conflict, NoSuchJob, NotAllowed
from redbox_api.sessions.client import open_exec
from redbox_api.sessions.forward import open_forward
from redbox_api.sessions.parts import ExecRequest
from tests.redbox.http.harness import Stand, eventually, standing
from tests.redbox.http.routes.harness import refusal, run, running


async def test_what_is_turned_off_is_a_403_on_every_way() -> None:
    async with standing(exec_settings=ExecSettings()) as stand:
        await running(stand)
        async with stand.client() as client:
            off = await refusal(client)
            assert isinstance(off, NotAllowed)
            assert "exec.enabled" in str(off)
            with pytest.raises(NotAllowed):
                async with open_forward(client, "k1"):
                    pass


async def test_with_the_role_exec_only_its_callers_enter() -> None:
    settings = ExecSettings(enabled=True, roles=frozenset({Role.EXEC}))
    async with standing(exec_settings=settings) as stand:
        await running(stand)
        async with stand.client() as client:
            assert isinstance(await refusal(client), NotAllowed)


async def test_too_many_sessions_are_refused() -> None:
    async with standing(exec_settings=ExecSettings(enabled=True, max_sessions_per_user=1)) as stand:
        await running(stand)
        request = ExecRequest(command=("sleep", "607.25"))
        async with stand.client() as client, open_exec(client, "k1", request):
            await eventually(lambda: stand.services.sessions.count == 1)
            assert "max_sessions_per_user" in str(await refusal(client))


async def test_the_audit_has_two_lines_a_session(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client:
        await run(client, "echo", "secret")
    await eventually(lambda: len(stand.audited) == 2)
    opened, ended = stand.audited
    assert (opened.act, opened.outcome, ended.outcome) == ("exec", "opened", "ended")
    assert json.loads(opened.detail)["command"] == '["echo", "secret"]'
    facts = json.loads(ended.detail)
    assert (facts["bytesIn"], facts["bytesOut"], facts["end"]) == (0, 7, "exit 0")
    assert facts["step"].startswith("rbx-")


async def test_the_audit_has_the_command_once_and_cuts_it_after_escaping(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client:
        await run(client, "echo", "\\" * 10_000)
    await eventually(lambda: len(stand.audited) == 2)
    opened, ended = stand.audited
    assert "characters" in json.loads(opened.detail)["command"]
    assert len(json.dumps(opened.detail)) < 2500
    assert "echo" not in ended.detail


async def test_a_refusal_has_an_audit_line(stand: Stand) -> None:
    async with stand.client() as client:
        await refusal(client, "k7")
    entry = stand.audited[0]
    assert (entry.act, entry.outcome, entry.job_id) == ("exec", "NoSuchJob", None)
    assert "/k7/" in entry.job


async def test_a_job_that_does_not_run_yet_has_no_audit_lines(stand: Stand) -> None:
    """A companion with ports asks every few seconds until it runs."""
    await stand.submitted("k1")
    before = len(stand.audited)
    async with stand.client() as client:
        with pytest.raises(Conflict):
            async with open_forward(client, "k1"):
                pass
        assert isinstance(await refusal(client), Conflict)
    assert len(stand.audited) == before


async def test_sessions_have_a_rate_for_each_caller() -> None:
    settings = ExecSettings(enabled=True, sessions_per_second=0.001, session_burst=1)
    async with standing(exec_settings=settings) as stand:
        await running(stand)
        async with stand.client() as client:
            assert (await run(client, "true"))[2].exit_code == 0
            limited = await refusal(client)
            assert isinstance(limited, Busy)
            assert "exec.sessions_per_second" in str(limited)
            with pytest.raises(Busy, match="sessions_per_second"):
                async with open_forward(client, "k1"):
                    pass
        async with stand.client("bob") as client:
            assert isinstance(await refusal(client), NoSuchJob)


async def test_the_audit_may_leave_out_arguments() -> None:
    async with standing(exec_settings=ExecSettings(enabled=True, audit_arguments=False)) as stand:
        await running(stand)
        async with stand.client() as client:
            await run(client, "echo", "secret")
        await eventually(lambda: len(stand.audited) == 2)
        assert "secret" not in stand.audited[0].detail + stand.audited[1].detail
