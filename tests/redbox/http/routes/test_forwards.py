"""Forwards over a real WebSocket, through a real agent and a real relay, to real servers of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from itertools import count
from typing import Any

import pytest

from redbox.callers import peers
from redbox.core.durations import Duration
from redbox.sessions import open_session
from redbox.sessions.settings import ExecSettings
from redbox_api.client import RedboxClient
from redbox_api.sessions.forward import JobForward, PortConnection, open_forward
from redbox_api.sessions.parts import SessionStatus
from redbox_shared.wire import PORTS_MORE_TO_JOB, PORTS_WINDOW
from tests.redbox.http.harness import ALICE_UID, Stand, eventually, standing
from tests.redbox.http.routes.harness import collect, run, running, serving

ECHO = """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", 0), backlog=512); print(listener.getsockname()[1], flush=True)
def serve(connection):
    while part := connection.recv(65536): connection.sendall(part)
    connection.close()
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
SILENT = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0)); print(listener.getsockname()[1], flush=True)
connections = []
while True: connections.append(listener.accept()[0])
"""
FLOOD = ECHO.replace(
    "while part := connection.recv(65536): connection.sendall(part)", "connection.sendall(bytes(5_000_000))"
)


EARLY = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0)); print(listener.getsockname()[1], flush=True)
while True:
    connection = listener.accept()[0]
    if connection.recv(1): time.sleep(0.5); connection.sendall(b"too large")
    connection.close()  # with input unread, so that the kernel resets it
"""


async def exchange(forward: JobForward, port: int, data: bytes) -> bytes:
    connection = await forward.connect(port)
    reading = asyncio.create_task(collect(connection))
    await connection.send(data)
    await connection.close_input()
    answer, _, status = await reading
    assert status.exit_code == 0, status
    return answer


async def test_connections_of_one_forward_carry_their_own_bytes(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client, serving(client, ECHO) as port, open_forward(client, "k1") as forward:
        sent = [os.urandom(700_000) for _ in range(5)]
        got = await asyncio.gather(*(exchange(forward, port, data) for data in sent))
    assert got == sent


async def test_a_port_without_a_server_or_with_another_users_is_refused(stand: Stand) -> None:
    await running(stand)
    if os.geteuid() != 0:
        pytest.skip("needs root, for a server of another user")
    with socket.create_server(("127.0.0.1", 0)) as others:
        async with stand.client() as client, open_forward(client, "k1") as forward:
            for port in (1, others.getsockname()[1]):
                _, _, status = await collect(await forward.connect(port))
                assert status.reason == "PortRefused"
                assert f"port {port}" in status.message


async def test_a_node_that_is_not_the_jobs_ends_its_connection_only(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client, serving(client, ECHO) as port, open_forward(client, "k1") as forward:
        _, _, status = await collect(await forward.connect(port, "n9"))
        assert (status.reason, "n9" in status.message) == ("Invalid", True)
        assert await exchange(forward, port, b"through") == b"through"


async def probe(client: RedboxClient, port: int) -> SessionStatus:
    """What the companion sends every few seconds."""
    async with open_forward(client, "k1") as forward:
        connection = PortConnection(9, forward._socket, lambda _: None)
        forward._connections[9] = connection
        request = json.dumps({"port": port, "probe": True}).encode()
        await forward._socket.send(b"\6\0\0\0\x09" + request)
        return (await collect(connection))[2]


async def test_a_look_says_whether_the_port_accepts_and_leaves_no_line_in_the_audit(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client, serving(client, SILENT) as port:
        before = len(stand.audited)
        assert (await probe(client, port)).status == "Success"
        assert (await probe(client, 1)).reason == "PortRefused"
        assert len(stand.audited) == before


async def test_the_audit_has_two_lines_for_each_port_that_was_used(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client, serving(client, ECHO) as port:
        before = len(stand.audited)
        async with open_forward(client, "k1") as forward:
            for _ in range(3):
                await exchange(forward, port, b"four")
        await eventually(lambda: len(stand.audited) == before + 2)
        opened, ended = stand.audited[before:]
    assert (opened.act, opened.outcome, ended.outcome) == ("forward", "opened", "ended")
    assert json.loads(opened.detail)["port"] == port
    facts = json.loads(ended.detail)
    assert (facts["connections"], facts["bytesIn"], facts["bytesOut"]) == (3, 12, 12)
    assert facts["step"].startswith("rbx-")


async def test_a_port_whose_connections_are_all_refused_has_no_line_in_the_audit() -> None:
    settings = ExecSettings(enabled=True, max_connections_per_user=1)
    async with standing(exec_settings=settings) as stand:
        await running(stand)
        async with stand.client() as client, serving(client, ECHO) as port:
            before = len(stand.audited)
            async with open_forward(client, "k1") as forward:
                first = await forward.connect(port)
                await first.send(b"x")
                await first.receive()
                for other in range(1, 9):
                    assert (await collect(await forward.connect(other)))[2].reason == "TooManyRequests"
            await eventually(lambda: not stand.services.sessions.connection_count)
            await eventually(lambda: stand.audited[-1].outcome == "ended")
            lines = [(entry.outcome, json.loads(entry.detail)["port"]) for entry in stand.audited[before:]]
    assert lines == [("opened", port), ("ended", port)]


async def test_each_port_of_a_forward_counts_as_a_session_that_begins() -> None:
    settings = ExecSettings(enabled=True, sessions_per_second=0.001, session_burst=3)
    async with standing(exec_settings=settings) as stand:
        await running(stand)
        async with (
            stand.client() as client,
            serving(client, ECHO) as port,  # the first; the forward is the second
            open_forward(client, "k1") as forward,
        ):
            before = len(stand.audited)
            for _ in range(3):
                assert await exchange(forward, port, b"four") == b"four"
            _, _, status = await collect(await forward.connect(1))
            assert (status.reason, "exec.sessions_per_second" in status.message) == ("TooManyRequests", True)
            assert [entry.outcome for entry in stand.audited[before:]] == ["opened"]


async def test_a_client_that_reads_nothing_of_a_connection_holds_back_no_other(stand: Stand) -> None:
    await running(stand)
    async with (
        stand.client() as client,
        serving(client, FLOOD) as flood,
        serving(client, ECHO) as port,
        open_forward(client, "k1") as forward,
    ):
        stalled = await forward.connect(flood)
        await eventually(lambda: sum(len(event.data) for event in stalled._events) > PORTS_WINDOW // 2)
        assert await exchange(forward, port, b"through") == b"through"
        assert sum(len(event.data) for event in stalled._events) <= PORTS_WINDOW
        await stalled.close_input()
        answer, _, status = await collect(stalled)
    assert (len(answer), status.exit_code) == (5_000_000, 0)


async def test_a_server_that_reads_nothing_holds_back_no_other(stand: Stand) -> None:
    await running(stand)
    async with (
        stand.client() as client,
        serving(client, SILENT) as silent,
        serving(client, ECHO) as port,
        open_forward(client, "k1") as forward,
    ):
        flood = asyncio.create_task((await forward.connect(silent)).send(bytes(50_000_000)))
        assert await exchange(forward, port, b"through") == b"through"
        assert not flood.done()
        flood.cancel()


async def test_a_server_that_answers_before_all_is_sent_and_closes_is_heard_and_its_reset_passed_on(
    stand: Stand,
) -> None:
    await running(stand)
    async with (
        stand.client() as client,
        serving(client, EARLY) as port,
        open_forward(client, "k1") as forward,
    ):
        connection = await forward.connect(port)
        flood = asyncio.create_task(connection.send(bytes(50_000_000)))
        answer, _, status = await collect(connection)
        await flood
    assert (answer, status.exit_code, status.reason) == (b"too large", None, "ConnectionReset")


async def test_a_connection_that_is_given_up_ends_in_the_job(stand: Stand) -> None:
    await running(stand)
    async with (
        stand.client() as client,
        serving(client, SILENT) as port,
        open_forward(client, "k1") as forward,
    ):
        connection = await forward.connect(port)
        await connection.send(b"x")
        await eventually(lambda: stand.services.sessions.connection_count == 1)
        await connection.close()
        await eventually(lambda: stand.services.sessions.connection_count == 0)
        assert not forward._connections


async def test_a_forward_ends_with_its_job_and_says_so(stand: Stand) -> None:
    job_id = await running(stand)
    async with (
        stand.client() as client,
        serving(client, SILENT) as port,
        open_forward(client, "k1") as forward,
    ):
        connection = await forward.connect(port)
        await connection.send(b"x")
        stand.slurm.end(job_id, "COMPLETED")
        _, _, status = await collect(connection)
        assert status.reason == "JobEnded"
        assert (await collect(await forward.connect(port)))[2].reason == "JobEnded"


async def test_an_idle_connection_ends_and_the_forward_goes_on() -> None:
    settings = ExecSettings(enabled=True, idle_limit=Duration(0.2))
    async with standing(exec_settings=settings) as stand:
        job_id = await running(stand)
        user: dict[str, Any] = {"user": ALICE_UID, "group": ALICE_UID, "extra_groups": []}
        server = await asyncio.create_subprocess_exec(  # in no session, which would be idle as well
            *("/usr/bin/python3", "-c", SILENT),
            env={"SLURM_JOB_ID": job_id},
            stdout=subprocess.PIPE,
            **(user if os.geteuid() == 0 else {}),
        )
        try:
            assert server.stdout is not None
            port = int(await server.stdout.readline())
            async with stand.client() as client, open_forward(client, "k1") as forward:
                for _ in range(2):
                    connection = await forward.connect(port)
                    assert (await collect(connection))[2].reason == "Idle"
                assert forward.failure is None
        finally:
            server.kill()
            await server.wait()


async def test_connections_of_a_user_are_bounded() -> None:
    settings = ExecSettings(enabled=True, max_connections_per_user=1)
    async with standing(exec_settings=settings) as stand:
        await running(stand)
        async with (
            stand.client() as client,
            serving(client, ECHO) as port,
            open_forward(client, "k1") as forward,
        ):
            first = await forward.connect(port)
            await first.send(b"x")
            await first.receive()
            _, _, status = await collect(await forward.connect(port))
            assert status.reason == "TooManyRequests"
            assert "exec.max_connections_per_user" in status.message
            assert (
                await probe(client, port)
            ).status == "Success"  # else all Services of the user are unready
            await first.close()
            await eventually(lambda: stand.services.sessions.connection_count == 0)
            assert await exchange(forward, port, b"again") == b"again"


async def test_probes_of_a_forward_are_bounded_and_carry_nothing(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(stand)
    async with stand.client() as client:
        async with open_forward(client, "k1") as forward:
            await forward._socket.send(opening(9, b'{"port":1,"probe":true}'))
            await forward._socket.send(b"\0" + (9).to_bytes(4) + b"x")  # before a relay has started
            await eventually(lambda: forward.failure is not None)
            assert "More bytes than the credit of connection 9" in str(forward.failure)
        monkeypatch.setattr(open_session, "MOST_PROBES", 0)
        status = await probe(client, 1)
        assert (status.reason, status.message) == (
            "TooManyRequests",
            "A forward has at most 0 probes at once.",
        )


def opening(number: int, request: bytes = b'{"port":1}') -> bytes:
    return b"\6" + number.to_bytes(4) + request


@pytest.mark.parametrize(
    ("messages", "part"),
    [
        ([b"\6\0"], "without the number"),
        ([opening(0)], "no number of a connection"),
        ([opening(1, b'{"port":0}')], "port"),
        ([opening(1, b'{"port":1,"nodee":"n1"}')], "nodee"),
        ([opening(1, b"no JSON")], "JSON"),
        ([b"no channel of ours"], None),
        ([b""], "channel in front"),
    ],
)
async def test_a_message_that_is_none_ends_the_forward_by_name(
    stand: Stand, messages: list[bytes], part: str | None
) -> None:
    await running(stand)
    async with stand.client() as client, open_forward(client, "k1") as forward:
        for message in messages:
            await forward._socket.send(message)
        if part is None:  # of a connection that is not there: it may have just ended
            assert (await collect(await forward.connect(1)))[2].reason == "PortRefused"
            return
        await eventually(lambda: forward.failure is not None)
    assert forward.failure is not None
    assert (forward.failure.reason, part in forward.failure.message) == ("Invalid", True)


async def test_all_credit_comes_back_once_all_was_passed_on(stand: Stand) -> None:
    """Another client may wait for any credit up to the window before it sends."""
    await running(stand)
    async with stand.client() as client, serving(client, ECHO) as port, open_forward(client, "k1") as forward:
        connection = await forward.connect(port)
        reading = asyncio.create_task(collect(connection))
        for size in (1, 100_000, 30_000):
            await connection.send(bytes(size))
            await eventually(lambda: connection._credit == PORTS_WINDOW + PORTS_MORE_TO_JOB)
        await connection.close_input()
        assert len((await reading)[0]) == 130_001


@pytest.mark.parametrize("piece", [peers.PIECE, 512])
async def test_more_than_its_credit_ends_the_forward(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    """Its client writes on, and is read to its end: what has come before the end may not be parsed yet."""
    monkeypatch.setattr(peers, "PIECE", piece)
    await running(stand)
    async with (
        stand.client() as client,
        serving(client, SILENT) as port,
        open_forward(client, "k1") as forward,
    ):
        connection = await forward.connect(port)
        connection._credit = 1 << 40
        await connection.send(bytes(30_000_000))
        _, _, status = await collect(connection)
    assert "credit of connection" in status.message


async def test_a_client_that_opens_and_never_reads_is_bounded(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client, open_forward(client, "k1") as forward:
        assert forward._socket.socket._conn is not None
        transport = forward._socket.socket._conn.transport
        assert transport is not None
        transport.pause_reading()
        assert stand.services.sessions.count

        async def open_without_end() -> None:
            for number in count(1):
                await forward._socket.send(opening(number, b'{"port":1,"node":"n9"}'))

        sending = asyncio.create_task(open_without_end())
        await eventually(lambda: not stand.services.sessions.count)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        transport.abort()


async def test_a_command_and_a_forward_share_a_relay(stand: Stand) -> None:
    await running(stand)
    async with stand.client() as client, serving(client, ECHO) as port, open_forward(client, "k1") as forward:
        assert await exchange(forward, port, b"x") == b"x"
        await run(client, "true")
        assert stand.services.sessions.relay_count == 1
