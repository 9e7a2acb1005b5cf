"""Agents on the bed's login host: the real sudo and sshd, real users, and sbatch as what must not be lost."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentRefused, CommandDetached, SystemCallFailed
from redbox.agents.install_texts import render_agent_conf, render_sudoers
from redbox.agents.pool import AgentPool
from redbox.agents.program_source import agent_source
from redbox.agents.protocol.answers import RecordedCommand, RecordedCommandState
from redbox.agents.settings import PoolSettings
from redbox.agents.transports.base import Transport
from redbox.agents.transports.ssh import LoginNode, SshTransport
from redbox.agents.transports.ssh_ca import KeyDirectory
from redbox.agents.transports.sudo import AGENT_PATH, SudoTransport
from redbox.core.domain import UnixUser
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host

ALICE = UnixUser("alice", 2001)
BOB = UnixUser("bob", 2002)
SERVER = "redbox"
WAIT_S = 60
SECRET = "sesame-0815"


class SudoOnBed(SudoTransport):
    """The sudo transport as the account redbox uses it on the login host."""

    def __init__(self, login: Host) -> None:
        super().__init__()
        self._login = login

    def argv(self, user: UnixUser) -> tuple[str, ...]:
        program, *rest = self._login.command(super().argv(user), SERVER)
        return (shutil.which(program) or program, *rest)


@pytest.fixture(scope="module")
def login(bed: Bed) -> Iterator[Host]:
    """Install on the login host what sudo is to start, with settings that are these tests' own."""
    login = bed.host("login")
    login.run("install", "-d", "-m", "755", "/usr/libexec/redbox", "/etc/redbox")
    login.write(AGENT_PATH, agent_source(), mode=0o755)
    login.write("/etc/redbox/agent.conf", render_agent_conf(min_uid=1000, path="/usr/bin:/bin"))
    login.write("/etc/sudoers.d/redbox", render_sudoers(), mode=0o440)
    yield login
    login.run("rm", "/etc/redbox/agent.conf")


@pytest.fixture(params=["sudo", "ssh"])
def transport(request: pytest.FixtureRequest, bed: Bed, login: Host, tmp_path: Path) -> Transport:
    if request.param == "sudo":
        return SudoOnBed(login)
    for user in (ALICE, BOB):
        (tmp_path / user.name).touch(mode=0o600)
        (tmp_path / user.name).write_bytes((bed.places.ssh / "id_ed25519").read_bytes())
    (forward,) = [one for one in bed.plan.forwards if (one.host, one.target_port) == ("login", 22)]
    node = LoginNode("127.0.0.1", bed.places.ssh / "known_hosts", forward.port)
    return SshTransport(node, KeyDirectory(tmp_path))


@asynccontextmanager
async def server(transport: Transport, user: UnixUser = ALICE) -> AsyncIterator[AgentClient]:
    async with AgentPool(transport, PoolSettings(leave_s=0.1)) as pool:
        yield await pool.agent(user)


@pytest.fixture
async def folder(transport: Transport) -> AsyncIterator[str]:
    """Make a directory in alice's home, as alice."""
    async with server(transport) as agent:
        path = f"{agent.hello.home}/agents-{uuid4()}"
        await agent.make_directory(path, mode=0o700)
        yield path
        await agent.remove(path, recursive=True)


async def recall_when(
    agent: AgentClient, keep: str, wanted: Callable[[RecordedCommand], bool]
) -> RecordedCommand:
    async with asyncio.timeout(WAIT_S):
        while not wanted(kept := await agent.recall(keep)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return kept


async def read_when_there(agent: AgentClient, path: str, length: int) -> bytes:
    async with asyncio.timeout(WAIT_S):
        while True:
            with suppress(SystemCallFailed):  # not there yet
                piece = await agent.read(path)
                if len(piece.data) >= length:
                    return piece.data
            await asyncio.sleep(0.1)


async def test_an_agent_is_its_user_with_all_groups(transport: Transport, login: Host) -> None:
    for user in (ALICE, BOB):
        async with server(transport, user) as agent:
            done = await agent.run(["id", "-G"], deadline=60)
        assert done.stdout.decode() == login.run("id", "-G", user=user.name).stdout


async def test_nobody_reads_anothers_files(transport: Transport, folder: str) -> None:
    async with server(transport) as alice:
        await alice.write(f"{folder}/secret", b"alice's", mode=0o600)
    async with server(transport, BOB) as bob:
        for path in (f"{folder}/secret", f"/home/bob/../../{folder}/secret", "/etc/shadow"):
            with pytest.raises(SystemCallFailed) as denied:
                await bob.read(path)
            assert denied.value.is_denied


async def test_slurm_takes_script_and_environment_without_a_file(transport: Transport, folder: str) -> None:
    values = {"PLAIN": "1", "COMMAS": "a,b\nc 'd' \"e\" ☃", "PATH": "/usr/bin:/bin", "TOKEN": SECRET}
    export = b"".join(f"{name}={value}\0".encode() for name, value in values.items())
    script = b'#!/bin/sh\nprintf "%s|%s|%s" "$PLAIN" "$COMMAS" "$TOKEN"\n'
    expected = "|".join((values["PLAIN"], values["COMMAS"], SECRET)).encode()
    async with server(transport) as agent:
        done = await agent.run(
            ["sbatch", "--parsable", f"--output={folder}/out", "--export-file={export}", "--export=ALL"],
            stdin=script,
            inherit={"{export}": export},
            cwd=folder,
            deadline=60,
        )
        assert (done.code, done.stderr) == (0, b"")
        assert int(done.stdout) > 0
        assert await read_when_there(agent, f"{folder}/out", len(expected)) == expected


async def test_nothing_of_a_request_is_seen_by_other_users(
    transport: Transport, folder: str, login: Host
) -> None:
    os_pipe = f"{folder}/gate"
    login.run("mkfifo", os_pipe, user="alice")
    secret = SECRET.encode()
    async with server(transport) as alice, server(transport, BOB) as bob:
        run = asyncio.create_task(
            alice.run(
                ["/bin/sh", "-c", f"read go <{os_pipe}", "sh", "{x}"],
                stdin=secret,
                inherit={"{x}": secret},
                env={"PATH": "/usr/bin:/bin", "TOKEN": SECRET},
                deadline=60,
            )
        )
        look = [
            "/bin/sh",
            "-c",
            "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; ls -lR /tmp /dev/shm",
        ]
        async with asyncio.timeout(WAIT_S):
            while b"read go" not in (seen := (await bob.run(look, deadline=60)).stdout):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        login.run("sh", "-c", f"echo go >{os_pipe}", user="alice")
        assert (await run).code == 0
    assert secret not in seen


async def test_a_submit_outlives_its_server_and_is_known_to_the_next(
    transport: Transport, folder: str, login: Host
) -> None:
    keep, gate = f"rb1.{uuid4()}", f"{folder}/gate"
    login.run("mkfifo", gate, user="alice")
    submit = (
        f"read go <{gate}; exec sbatch --parsable --hold --job-name={keep} --output=/dev/null --wrap=true"
    )
    async with server(transport) as agent:
        with pytest.raises(CommandDetached):
            await agent.run(["/bin/sh", "-c", submit], keep=keep, deadline=0.5)
    async with server(transport) as agent:
        assert (await agent.recall(keep)).state is RecordedCommandState.RUNNING
        login.run("sh", "-c", f"echo go >{gate}", user="alice")
        kept = await recall_when(agent, keep, lambda kept: kept.state is not RecordedCommandState.RUNNING)
        assert kept.completed
        job_id = kept.completed.stdout.decode().strip()
        listed = await agent.run(["squeue", "--noheader", "--format=%i", f"--name={keep}"], deadline=60)
        assert listed.stdout.decode().split() == [job_id]
        await agent.run(["scancel", job_id], deadline=60)


async def test_a_submit_is_found_although_the_way_to_its_agent_is_dead_and_not_closed(
    bed: Bed, login: Host, tmp_path: Path
) -> None:
    """The far end of a cut cable: sshd notices nothing, and the first agent waits on."""
    keep, gate = f"rb1.{uuid4()}", f"/home/alice/gate-{uuid4()}"
    login.run("mkfifo", gate, user="alice")
    (tmp_path / "alice").touch(mode=0o600)
    (tmp_path / "alice").write_bytes((bed.places.ssh / "id_ed25519").read_bytes())
    (forward,) = [one for one in bed.plan.forwards if (one.host, one.target_port) == ("login", 22)]
    ssh = SshTransport(
        LoginNode("127.0.0.1", bed.places.ssh / "known_hosts", forward.port), KeyDirectory(tmp_path)
    )
    async with server(ssh) as first:
        with pytest.raises(CommandDetached):
            await first.run(["/bin/sh", "-c", f"read go <{gate}; echo 4711"], keep=keep, deadline=0.5)
        parent = await first.run(["/bin/sh", "-c", "cut -d' ' -f4 /proc/$PPID/stat"], deadline=60)
        session = parent.stdout.decode().strip()  # sshd's own process for this connection
        login.run("kill", f"-{signal.SIGSTOP.value}", session)
        try:
            async with server(ssh) as second:
                assert (await second.recall(keep)).state is RecordedCommandState.RUNNING
                login.run("sh", "-c", f"echo go >{gate}", user="alice")
                kept = await recall_when(second, keep, lambda kept: kept.state is RecordedCommandState.ENDED)
                await second.remove(gate)
        finally:
            login.run("kill", f"-{signal.SIGCONT.value}", session)
    assert kept.completed
    assert kept.completed.stdout == b"4711\n"


async def test_sudo_and_the_agent_refuse_root_and_system_accounts(login: Host) -> None:
    transport = SudoOnBed(login)
    async with AgentPool(transport) as pool:
        for user in (UnixUser("root", 0), UnixUser("munge", 101), UnixUser("slurm", 64030)):
            with pytest.raises(AgentRefused):
                await pool.agent(user)
