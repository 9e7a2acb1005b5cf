"""Sessions over a real WebSocket, through a real agent and a real relay; only srun is stood in for."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redbox.core.durations import Duration
from redbox.sessions import watches
from redbox.sessions.settings import ExecSettings
from redbox_api.client import RedboxClient
from redbox_api.errors import Conflict, NoSuchJob, NotAccepted, NotAllowed
from redbox_api.sessions.client import JobSession, RenewedSocket, SessionData, open_exec, open_session
from redbox_api.sessions.parts import ExecRequest, TerminalSize
from tests.redbox.http.harness import ALICE_UID, Stand, eventually, standing
from tests.redbox.http.routes.harness import collect, refusal, run, running

SH = ("/bin/sh", "-c")


@asynccontextmanager
async def batch_process(stand: Stand, job_id: str) -> AsyncIterator[None]:
    """What a session takes its environment and its folder from: the job's script."""
    environment = {"SLURM_JOB_ID": job_id, "PATH": "/usr/bin:/bin", "OF_THE_JOB": "yes"}
    process = await asyncio.create_subprocess_exec(
        "/usr/bin/sleep",
        "600",
        env=environment,
        cwd=stand.home,
        user=ALICE_UID if os.geteuid() == 0 else None,
        group=ALICE_UID if os.geteuid() == 0 else None,
        extra_groups=[] if os.geteuid() == 0 else None,
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()


def processes_of(marker: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


async def test_a_command_runs_in_the_jobs_environment_and_folder(stand: Stand) -> None:
    job_id = await running(stand)
    async with batch_process(stand, job_id), stand.client() as client:
        script = "echo $OF_THE_JOB; pwd; id -u; cat /proc/self/oom_score_adj; echo no >&2; exit 7"
        stdout, stderr, status = await run(client, *SH, script)
    assert stdout.split() == [b"yes", str(stand.home).encode(), str(ALICE_UID).encode(), b"1000"]
    assert stderr == b"no\n"
    assert status.exit_code == 7
    assert status.reason == "NonZeroExitCode"


@pytest.mark.parametrize(
    ("command", "code"),
    [(("true",), 0), ((*SH, "kill -9 $$"), 137), (("no-such-program",), 127), (("/etc/passwd",), 126)],
)
async def test_the_status_has_the_commands_exit(stand: Stand, command: tuple[str, ...], code: int) -> None:
    await running(stand)
    async with stand.client() as client:
        _, stderr, status = await run(client, *command)
    assert status.exit_code == code
    assert (command[0].encode() in stderr) == (code in {126, 127})


@pytest.mark.parametrize("token", [None, "alice"], ids=["Unix socket", "TLS"])
async def test_input_reaches_the_command_until_it_is_closed(stand: Stand, token: str | None) -> None:
    await running(stand)
    data = os.urandom(3_000_000)
    async with stand.client(token) as client:
        request = ExecRequest(command=("cat",))
        async with open_exec(client, "k1", request) as session:
            reading = asyncio.create_task(collect(session))
            await session.send(data)
            await session.close_input()
            stdout, _, status = await reading
    assert stdout == data
    assert status.exit_code == 0


async def test_a_terminal_has_the_clients_size_and_its_changes(stand: Stand) -> None:
    await running(stand)
    script = "stty size; trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done"
    async with stand.client() as client:
        size = TerminalSize(columns=100, rows=30)
        request = ExecRequest(command=(*SH, script), tty=True, size=size, term="vt100")
        async with open_exec(client, "k1", request) as session:
            async with asyncio.timeout(60):
                text = b""
                while b"ready" not in text:
                    event = await session.receive()
                    assert isinstance(event, SessionData)
                    text += event.data
            assert b"30 100" in text
            for columns in range(1, 10_000):
                await session.resize(TerminalSize(columns=columns, rows=40))
            await session.resize(TerminalSize(columns=120, rows=40))
            stdout, _, status = await collect(session)
    assert b"40 " in stdout
    assert status.exit_code == 0


async def test_ctrl_c_ends_what_runs_in_a_terminal(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client:
        request = ExecRequest(command=(*SH, "echo ready; exec sleep 600"), tty=True)
        async with open_exec(client, "k1", request) as session:
            await session.receive()
            await session.send(b"\x03")
            _, _, status = await collect(session)
    assert status.exit_code == 130


async def test_nothing_remains_of_a_session_whose_client_has_gone(stand: Stand) -> None:
    await running(stand)
    marker = "601.25"
    async with stand.client() as client:
        request = ExecRequest(command=(*SH, f"sleep {marker} & echo ready; trap '' HUP; sleep {marker}"))
        async with open_exec(client, "k1", request) as session:
            await session.receive()
            assert processes_of(marker)
    await eventually(lambda: not processes_of(marker))


async def test_sessions_share_a_relay_that_starts_before_the_first_is_requested(stand: Stand) -> None:
    await running(stand)
    sessions = stand.services.sessions
    async with stand.client() as client:
        session = await open_session(client, "k1")
        await eventually(lambda: (sessions.count, sessions.relay_count) == (0, 1))
        await session.start(ExecRequest(command=(*SH, "echo $PPID")))
        first, _, _ = await collect(session)
        await session.close()
        second, _, _ = await run(client, *SH, "echo $PPID")
    assert first == second
    assert sessions.relay_count == 1


async def test_a_client_that_never_reads_holds_back_no_other(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client:
        async with open_exec(client, "k1", ExecRequest(command=("yes",))):
            stdout, _, status = await run(client, "echo", "through")
        assert (stdout, status.exit_code) == (b"through\n", 0)


async def test_a_client_that_never_reads_is_idle_in_the_end() -> None:
    settings = ExecSettings(enabled=True, idle_limit=Duration(1))
    async with standing(stall_s=0.2, exec_settings=settings) as stand:
        await running(stand)
        async with (
            stand.client() as client,
            open_exec(client, "k1", ExecRequest(command=("yes", "610.25"))) as session,
        ):
            first = await session.receive()
            assert isinstance(first, SessionData)
            assert first.data.startswith(b"610.25\n")  # its program may be over already
            await eventually(lambda: any("Idle" in entry.detail for entry in stand.audited))
            await eventually(lambda: not processes_of("610.25"))


async def test_a_client_that_pauses_before_the_end_gets_the_status() -> None:
    """As `redbox exec ... | less`. Of some of these sizes the status waits until the client reads on."""
    async with standing(stall_s=0.1, exec_settings=ExecSettings(enabled=True)) as stand:
        await running(stand)

        async def paused(client: RedboxClient, size: int) -> bool:
            request = ExecRequest(command=("head", "-c", str(size), "/dev/zero"))
            async with open_exec(client, "k1", request) as session:
                first = await session.receive()
                assert isinstance(first, SessionData)
                inner: Any = session
                transport = inner._socket.socket._conn.transport
                transport.pause_reading()
                await asyncio.sleep(0.7)
                transport.resume_reading()
                stdout, _, status = await collect(session)
            return (len(first.data) + len(stdout), status.exit_code) == (size, 0)

        async with stand.client() as client:
            sizes = range(250_000, 550_000, 20_000)
            assert all(await asyncio.gather(*(paused(client, size) for size in sizes)))


async def test_a_command_that_reads_nothing_holds_back_no_other(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client:
        async with open_exec(client, "k1", ExecRequest(command=("sleep", "602.25"))) as session:
            flood = asyncio.create_task(session.send(bytes(50_000_000)))
            stdout, _, _ = await run(client, "echo", "through")
            flood.cancel()
        assert stdout == b"through\n"


async def test_a_command_of_a_megabyte(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client:
        stdout, _, status = await run(client, "/bin/echo", *["x" * 100_000] * 10)
        assert len(stdout) == 1_000_010
        assert status.exit_code == 0
        _, _, status = await run(client, "/bin/echo", "x" * 1_000_000)
    assert status.exit_code == 126
    assert "too long" in status.message


async def test_a_relay_that_is_killed_ends_its_sessions_with_a_reason(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "SHOWN_S", 600)
    await running(stand)
    marker = "603.25"
    async with stand.client() as client:
        command = (*SH, f"echo $PPID; exec sleep {marker}")
        async with open_exec(client, "k1", ExecRequest(command=command)) as session:
            event = await session.receive()
            assert isinstance(event, SessionData)
            os.kill(int(event.data), signal.SIGKILL)
            _, _, status = await collect(session)
        assert status.exit_code is None
        assert status.reason == "RelayLost"
        again = await run(client, "echo", "again")
    assert again[0] == b"again\n"


@pytest.mark.parametrize("state", ["TIMEOUT", "COMPLETING"])
async def test_a_relay_that_ends_with_its_job_is_the_end_of_the_job(state: str) -> None:
    """Slurm ends the steps of a job before the next poll, which is seconds away, shows its end."""
    enabled = ExecSettings(enabled=True)
    async with standing(exec_settings=enabled, shortest_interval_s=2, longest_interval_s=2) as stand:
        job_id = await running(stand)
        async with stand.client() as client:
            command = (*SH, "echo $PPID; exec sleep 608.25")
            async with open_exec(client, "k1", ExecRequest(command=command)) as session:
                event = await session.receive()
                assert isinstance(event, SessionData)
                stand.slurm.put(replace(stand.slurm.jobs[job_id], state=state))
                os.kill(int(event.data), signal.SIGTERM)
                _, _, status = await collect(session)
        assert status.reason == "JobEnded"
        await eventually(lambda: any("JobEnded" in entry.detail for entry in stand.audited))


async def test_a_relay_that_is_lost_in_a_suspended_job_says_so(stand: Stand) -> None:
    job_id = await running(stand)
    command = (*SH, "echo $PPID; exec sleep 609.25")
    async with stand.client() as client, open_exec(client, "k1", ExecRequest(command=command)) as session:
        event = await session.receive()
        assert isinstance(event, SessionData)
        stand.slurm.put(replace(stand.slurm.jobs[job_id], state="SUSPENDED"))
        await stand.until("k1", lambda job: job["phase"] == "Suspended")
        os.kill(int(event.data), signal.SIGKILL)
        _, _, status = await collect(session)
    assert (status.reason, "begin again once it is resumed" in status.message) == ("RelayLost", True)


async def test_an_agent_that_is_killed_leaves_no_process(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "SHOWN_S", 600)
    await running(stand)
    marker = "604.25"
    async with stand.client() as client:
        command = (*SH, f"echo ready; exec sleep {marker}")
        async with open_exec(client, "k1", ExecRequest(command=command)) as session:
            await session.receive()
            stand.transport.end_all()
            _, _, status = await collect(session)
    assert status.reason == "RelayLost"
    await eventually(lambda: not processes_of(marker))


async def test_a_session_ends_with_its_job(stand: Stand) -> None:
    job_id = await running(stand)
    request = ExecRequest(command=("sleep", "605.25"))
    async with stand.client() as client, open_exec(client, "k1", request) as session:
        stand.slurm.end(job_id, "COMPLETED")
        _, _, status = await collect(session)
    assert status.reason == "JobEnded"


async def test_an_idle_session_ends() -> None:
    settings = ExecSettings(enabled=True, idle_limit=Duration(0.2))
    async with standing(exec_settings=settings) as stand:
        await running(stand)
        async with stand.client() as client:
            _, _, status = await run(client, "sleep", "606.25")
    assert status.reason == "Idle"


async def test_jobs_that_cannot_be_entered_are_refused_before_the_upgrade(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    async with stand.client() as client:
        assert isinstance(await refusal(client), NoSuchJob)
        job_id = await stand.submitted("k1")
        pending = await refusal(client)
        assert isinstance(pending, Conflict)
        assert "does not run yet" in str(pending)
        stand.slurm.start(job_id)
        await stand.until("k1", lambda job: job["phase"] == "Running")
        assert (await run(client, "true"))[2].exit_code == 0
        stand.slurm.end(job_id, "COMPLETED")
        await stand.until("k1", lambda job: job["phase"] == "Succeeded")
        assert "has ended" in str(await refusal(client))
    async with stand.client("bob") as client:
        assert isinstance(await refusal(client), NoSuchJob)
    async with stand.client("operator") as client:
        assert isinstance(await refusal(client), NotAllowed)
    assert "ERROR" not in {record.levelname for record in caplog.records}


async def renew_nothing(token: str) -> None:
    del token


@pytest.mark.parametrize(
    ("first", "part"),
    [
        ('{"command": []}', "command"),
        ('{"command": ["a"], "nodee": "n1"}', "nodee"),
        ('{"command": ["a\\u0000"]}', "byte 0"),
        ("no JSON", "JSON"),
        ('{"command": ["a"], "node": "n9"}', "n9"),
        ('{"command": ["a"], "task": 3}', "not an array"),
        ('{"attach": true}', "container"),
        ('{"attach": true, "container": "main", "command": ["a"]}', "without command"),
        ("{}", "name a program, or attach"),
    ],
)
async def test_a_wrong_first_message_is_named_in_the_status(stand: Stand, first: str, part: str) -> None:
    await running(stand)
    async with stand.client() as client:
        ws = await client.open_websocket("/v1/jobs/k1/exec", {}, "v1.exec.redbox.dev")
        await ws.send_str(first)
        session = JobSession(RenewedSocket(ws, client.token, None, renew_nothing))
        _, _, status = await collect(session)
        await session.close()
    assert status.reason == "Invalid"
    assert part in status.message


async def test_a_container_that_cannot_be_attached_to_is_named(stand: Stand) -> None:
    await running(stand)
    async with (
        stand.client() as client,
        open_exec(client, "k1", ExecRequest(attach=True, container="main")) as session,
    ):
        _, _, status = await collect(session)
    assert (status.reason, "Container main has no stdin" in status.message) == ("CannotStart", True)
    opened = stand.audited[0]
    assert json.loads(opened.detail or "") == {
        "attach": True,
        "tty": False,
        "container": "main",
        "node": "n1",
    }


MASK = bytes(4)
EMPTY_PARTS = b"\x02\x80" + MASK + (b"\x00\x80" + MASK) * 5000
PINGS = (b"\x89\xfd" + MASK + bytes(125)) * 100_000


@pytest.mark.parametrize("flood", [EMPTY_PARTS, PINGS], ids=["empty parts of a message", "pings"])
async def test_a_client_that_floods_a_socket_is_cut_off(stand: Stand, flood: bytes) -> None:
    await running(stand)
    async with stand.client() as client, open_exec(client, "k1", ExecRequest(command=("cat",))) as session:
        socket = session._socket.socket
        assert socket._conn is not None
        transport = socket._conn.transport
        assert transport is not None
        transport.pause_reading()
        transport.write(flood)
        await eventually(lambda: any("client has gone" in entry.detail for entry in stand.audited))
        transport.abort()


async def test_another_subprotocol_is_refused(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client:
        with pytest.raises(NotAccepted, match=r"v1\.exec\.redbox\.dev"):
            await client.open_websocket("/v1/jobs/k1/exec", {}, "v5.channel.k8s.io")
