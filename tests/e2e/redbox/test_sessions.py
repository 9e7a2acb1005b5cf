"""Sessions in real jobs: srun's own steps, relays on the nodes, and that nothing of them remains there."""

from __future__ import annotations

import asyncio
import json
import os
import termios
from collections.abc import Iterator

import pytest

from redbox_api.client import RedboxClient
from redbox_api.errors import NotAuthenticated, RedboxError
from redbox_api.models import Phase
from redbox_api.sessions import client as sessions_client
from redbox_api.sessions.client import JobSession, SessionData, open_exec
from redbox_api.sessions.forward import JobForward, PortConnection, open_forward
from redbox_api.sessions.parts import ExecRequest, SessionChannel, SessionStatus, TerminalSize
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.e2e.harness.redbox_jobs import started, submit, until
from tests.e2e.harness.redbox_server import RedboxServer, running
from tests.e2e.harness.terminals import PROMPT, WITHIN_S, has_its_size_and_ctrl_c, read_until, terminal

SH = ("/bin/sh", "-c")


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    with running(bed, sections={"exec": {"enabled": True}, "callers": {"leeway": "1s"}}) as server:
        yield server


async def collect(session: JobSession | PortConnection) -> tuple[bytes, bytes, SessionStatus]:
    outputs = {1: b"", 2: b""}
    async with asyncio.timeout(120):
        while isinstance(event := await session.receive(), SessionData):
            outputs[event.channel] += event.data
    return outputs[1], outputs[2], event


async def run(client: RedboxClient, key: str, *command: str) -> tuple[bytes, bytes, SessionStatus]:
    async with open_exec(client, key, ExecRequest(command=command, stdin=False)) as session:
        return await collect(session)


def processes_on_nodes(bed: Bed, marker: str) -> str:
    found = [bed.host(node).run("pgrep", "-f", marker, check=False).stdout for node in ("n1", "n2")]
    return "".join(map(str, found)).replace("b''", "").strip()


async def test_a_session_is_in_the_jobs_environment_and_folder(server: RedboxServer) -> None:
    async with server.client_of("alice") as client:
        key = await submit(client, "export LATER=1", "cd /tmp", "sleep 300", env={"HERE": "1"})
        job = await started(client, key)
        script = "echo $SLURM_JOB_ID; id -un; hostname; cat /proc/self/oom_score_adj; pwd; echo $HERE$LATER;"
        stdout, stderr, status = await run(client, key, *SH, f"{script} exit 7")
        begins_with = [job.job_id, "alice", job.nodes[0], "1000", "/tmp", "1"]
        assert stdout.decode().split() == begins_with
        assert (stderr, status.exit_code) == (b"", 7)
        await client.cancel_job(key)


@pytest.mark.parametrize(
    ("places", "step"),
    [
        (("#SBATCH --nodes=2 --ntasks-per-node=1",), "srun"),
        (
            ("#SBATCH --nodelist=n1 -n1", "#SBATCH hetjob", "#SBATCH --nodelist=n2 -n1"),
            "srun --het-group=0,1",
        ),
    ],
    ids=["nodes", "components"],
)
async def test_each_node_of_a_job_is_entered_and_its_ports_are_reached(
    server: RedboxServer, places: tuple[str, ...], step: str
) -> None:
    """Slurm starts a het job by its backfill alone, every 30 s."""
    serves = "cd $(mktemp -d); hostname >index.html; exec python3 -m http.server 18889"
    async with server.client_of("alice") as client:
        key = await submit(client, *places, f"{step} sh -c '{serves}'")
        job = await started(client, key)
        assert len(job.nodes) == 2
        async with open_forward(client, key) as forward:
            for node in job.nodes:
                request = ExecRequest(command=(*SH, "hostname; echo $SLURM_JOB_ID"), node=node, stdin=False)
                async with open_exec(client, key, request) as session:
                    stdout, _, status = await collect(session)
                assert stdout.decode().split() == [node, job.job_id], status
                assert (await page_of(forward, 18889, node)).endswith(f"{node}\n".encode())
        await client.cancel_job(key)


async def page_of(forward: JobForward, port: int, node: str | None = None) -> bytes:
    """What a server of the job answers, as soon as it listens."""
    while True:
        connection = await forward.connect(port, node)
        await connection.send(b"GET /index.html HTTP/1.0\r\n\r\n")
        await connection.close_input()
        answer, _, status = await collect(connection)
        if status.exit_code == 0:
            return answer
        assert status.reason == "PortRefused", status


async def test_a_session_that_takes_all_memory_ends_alone(server: RedboxServer) -> None:
    """The kernel chooses it and not the job's script, although that has more of the job's memory."""
    holds = "import time; data = b'x' * (150 << 20); print('holds', flush=True); time.sleep(300)"
    takes = "import time; data = b'x' * (100 << 20); data += b'x' * (250 << 20); print('took it')"
    async with server.client_of("alice") as client:
        key = await submit(client, "#SBATCH --mem=300", f'exec python3 -c "{holds}"')
        await started(client, key)
        assert await log_begins(client, key) == b"holds"
        stdout, _, status = await run(client, key, "python3", "-c", takes)
        assert (stdout, status.exit_code) == (b"", 137), status
        stdout, _, status = await run(
            client, key, "pgrep", "-f", "^python3 -c import time; data = .* time.sleep"
        )
        assert (bool(stdout), status.exit_code) == (True, 0), "the job's script runs on"
        assert (await client.get_job(key)).phase is Phase.RUNNING
        await client.cancel_job(key)


async def log_begins(client: RedboxClient, key: str) -> bytes:
    async with client.stream("GET", f"/v1/jobs/{key}/logs/stdout", {"follow": "true", "limit": 5}) as answer:
        return bytes(await answer.read())


async def test_a_session_ends_with_its_run_and_the_next_run_is_entered(server: RedboxServer) -> None:
    async with server.client_of("alice") as client:
        key = await submit(client, "sleep 300")
        await started(client, key)
        async with open_exec(client, key, ExecRequest(command=("sleep", "300"))) as session:
            await client.act_on_job(key, "requeue")
            _, _, status = await collect(session)
        assert status.reason in {"JobEnded", "RelayLost"}
        waiting = await until(client, key, lambda job: job.reason == "BeginTime")
        with pytest.raises(RedboxError, match="does not run yet"):
            await run(client, key, "true")
        server.login.run("scontrol", "update", f"JobId={waiting.job_id}", "StartTime=now+3", user="alice")
        await until(client, key, lambda job: job.phase is Phase.RUNNING and job.run == 2)
        stdout, _, status = await run(client, key, *SH, "echo $SLURM_RESTART_COUNT")
        assert stdout == b"1\n", status
        await client.cancel_job(key)


async def test_a_suspended_job_is_refused_and_its_sessions_go_on(server: RedboxServer) -> None:
    async with server.client_of("alice") as client:
        key = await submit(client, "sleep 300")
        job = await started(client, key)
        async with open_exec(client, key, ExecRequest(command=("cat",))) as session:
            await session.send(b"before\n")
            assert await session.receive() == SessionData(SessionChannel.STDOUT, b"before\n")
            server.login.run("scontrol", "suspend", str(job.job_id))
            await until(client, key, lambda job: job.phase is Phase.SUSPENDED)
            with pytest.raises(RedboxError, match="is suspended"):
                await run(client, key, "true")
            server.login.run("scontrol", "resume", str(job.job_id))
            await session.send(b"after\n")
            await session.close_input()
            stdout, _, status = await collect(session)
        assert stdout == b"after\n", status
        await client.cancel_job(key)


async def test_bytes_pass_both_ways_unchanged(server: RedboxServer) -> None:
    data = bytes(range(256)) * 20_000 + os.urandom(1_000_000)
    async with server.client_of("alice") as client:
        key = await submit(client, "sleep 300")
        await started(client, key)
        async with open_exec(client, key, ExecRequest(command=("cat",))) as session:
            reading = asyncio.create_task(collect(session))
            await session.send(data)
            await session.close_input()
            stdout, _, status = await reading
        assert stdout == data
        assert status.exit_code == 0
        await client.cancel_job(key)


async def test_a_session_whose_command_reads_nothing_outlives_its_first_token(
    server: RedboxServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_client, "RENEW_S", 0.5)
    tokens = [server.cluster.token("alices")]

    async def newest() -> str:
        return tokens[-1]

    ca = server.authority.certificate.decode()
    async with RedboxClient(server.endpoint, token=newest, ca_bundle=ca) as client:
        key = await submit(client, "sleep 300")
        await started(client, key)
        tokens.append(first := server.cluster.token("alices", lives_s=6))
        waits = f"until [ -e /tmp/{key} ]; do sleep 0.1; done; rm /tmp/{key}; echo still here"
        async with open_exec(client, key, ExecRequest(command=(*SH, waits))) as session:
            flood = asyncio.create_task(session.send(bytes(50_000_000)))
            await asyncio.sleep(2)  # until red-box reads no more
            tokens.append(server.cluster.token("alices"))
            await asyncio.sleep(8)  # until the first one expires, and a second that red-box takes to end it
            async with server.client(first) as expired:
                with pytest.raises(NotAuthenticated):
                    await expired.whoami()
            assert (await run(client, key, "touch", f"/tmp/{key}"))[2].exit_code == 0
            stdout, _, status = await collect(session)
            flood.cancel()
        assert (stdout, status.exit_code) == (b"still here\n", 0), status
        await client.cancel_job(key)


async def test_a_terminal_takes_keys_and_sizes(server: RedboxServer) -> None:
    async with server.client_of("alice") as client:
        key = await submit(client, "sleep 300")
        await started(client, key)
        size = TerminalSize(columns=100, rows=30)
        request = ExecRequest(command=(*SH, "stty size; tty; exec sleep 300"), tty=True, size=size)
        async with open_exec(client, key, request) as session:
            event = await session.receive()
            assert isinstance(event, SessionData)
            assert b"30 100" in event.data
            await session.send(b"\x03")
            _, _, status = await collect(session)
        assert status.exit_code == 130
        await client.cancel_job(key)


async def test_a_shell_on_the_login_node_is_a_terminal(server: RedboxServer, login: Host) -> None:
    put = ("curl", "-sf", "--unix-socket", server.socket, "-XPUT", "-H", "Content-Type: application/json")
    body = json.dumps({"batch": "#!/bin/sh\nsleep 300\n"})
    login.run(*put, "http://localhost/v1/jobs/keep", "-d", body, user="alice")
    show = ("curl", "-sf", "--unix-socket", server.socket, "http://localhost/v1/jobs/keep")
    async with asyncio.timeout(120):
        while '"Running"' not in login.run(*show, user="alice").stdout:  # noqa: ASYNC110 (another host's)
            await asyncio.sleep(0.2)
    command = login.command(("redbox", "shell", "--socket", server.socket, "keep"), "alice", None)
    with terminal(command) as (process, screen):
        shown = await asyncio.to_thread(read_until, screen, PROMPT)
        assert b"Traceback" not in shown
        before = termios.tcgetattr(screen)[3]
        assert not before & termios.ECHO, "its keys are echoed by the job's terminal alone"
        await asyncio.to_thread(has_its_size_and_ctrl_c, screen)
        os.write(screen, b"exit 5\n")
        assert await asyncio.to_thread(process.wait, WITHIN_S) == 5
        assert termios.tcgetattr(screen)[3] & termios.ECHO, "the terminal is as it was"
    there = ("redbox", "exec", "--socket", server.socket, "-i", "keep", "--", "sh", "-c", "cat; exit 7")
    done = login.run(*there, user="alice", stdin="typed\n", check=False)
    assert (done.returncode, done.stdout) == (7, "typed\n"), done.stderr
    login.run("curl", "-sf", "--unix-socket", server.socket, "-XDELETE", show[-1], user="alice")


async def test_a_port_of_the_job_is_reached_and_none_of_the_users_other_job_beside_it(
    server: RedboxServer,
) -> None:
    async with server.client_of("alice") as client:
        key = await submit(client, "echo hello > index.html", "exec python3 -m http.server 18888")
        (node,) = (await started(client, key)).nodes
        async with open_forward(client, key) as forward:
            answer = await page_of(forward, 18888)
        assert answer.endswith(b"hello\n")
        beside = await submit(client, f"#SBATCH --nodelist={node}", "sleep 300")
        await started(client, beside)
        async with open_forward(client, beside) as forward:
            connection = await forward.connect(18888)
            _, _, status = await collect(connection)
        assert status.reason == "PortRefused", status
        for each in (key, beside):
            await client.cancel_job(each)


async def test_nothing_remains_of_a_client_that_has_gone(server: RedboxServer, bed: Bed) -> None:
    async with server.client_of("alice") as client:
        key = await submit(client, "sleep 300")
        await started(client, key)
        request = ExecRequest(command=(*SH, "echo ready; trap '' HUP; sleep 621.25; sleep 621.25"))
        async with open_exec(client, key, request) as session:
            await session.receive()
            assert processes_on_nodes(bed, "[6]21.25")
        async with asyncio.timeout(60):
            while processes_on_nodes(bed, "[6]21.25"):  # noqa: ASYNC110 (another host's)
                await asyncio.sleep(0.2)
        assert (await client.get_job(key)).phase is Phase.RUNNING
        await client.cancel_job(key)


async def test_jobs_that_cannot_be_entered_are_refused(server: RedboxServer) -> None:
    async with server.client_of("alice") as client, server.client_of("bob") as bob:
        key = await submit(client, "#SBATCH --hold", "sleep 300")
        with pytest.raises(RedboxError, match="does not run yet"):
            await run(client, key, "true")
        with pytest.raises(RedboxError, match="no such job"):
            await run(bob, key, "true")
        await client.cancel_job(key)


async def test_a_session_ends_with_its_job(server: RedboxServer) -> None:
    async with server.client_of("alice") as client:
        key = await submit(client, "sleep 300")
        await started(client, key)
        request = ExecRequest(command=("sleep", "300"))
        async with open_exec(client, key, request) as session:
            await client.cancel_job(key)
            _, _, status = await collect(session)
        assert status.exit_code is None
        assert status.reason in {"JobEnded", "RelayLost"}


async def test_a_task_of_an_array_is_named(server: RedboxServer) -> None:
    async with server.client_of("alice") as client:
        key = await submit(client, "#SBATCH --array=0-1", "sleep 300")
        await until(
            client,
            key,
            lambda job: all(t.phase is Phase.RUNNING for t in job.tasks or ()) and bool(job.tasks),
        )
        _, _, status = await run(client, key, "true")
        assert "name one of its tasks" in status.message
        request = ExecRequest(command=(*SH, "echo $SLURM_ARRAY_TASK_ID"), task=1, stdin=False)
        async with open_exec(client, key, request) as session:
            stdout, _, status = await collect(session)
        assert stdout == b"1\n", status
        await client.cancel_job(key)
