"""Agents are started as the right user by the real sudo and the real sshd, and as no other."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import asyncssh
import pytest

from redbox.agents.errors import AgentRefused, AgentUnavailable
from redbox.agents.pool import AgentPool
from redbox.agents.transports.base import Transport
from redbox.agents.transports.self_ import SelfTransport
from redbox.agents.transports.ssh import LoginNode, SshTransport
from redbox.agents.transports.ssh_ca import CertificateAuthority, KeyDirectory
from redbox.agents.transports.sudo import SudoTransport
from redbox.core.domain import UnixUser
from tests.redbox.agents.login_host import (
    ALICE,
    BOB,
    CAROL,
    DAVE,
    LEGACY,
    MALLORY,
    LoginHost,
    SudoOnLoginHost,
)

CA_LIFETIME_S = 300


def by_key(host: LoginHost) -> SshTransport:
    return SshTransport(LoginNode("127.0.0.1", host.known_hosts, host.port), KeyDirectory(host.keys))


def by_certificate(host: LoginHost, authority: CertificateAuthority | None = None) -> SshTransport:
    authority = authority or CertificateAuthority(host.ca_key, ["127.0.0.1"])
    return SshTransport(LoginNode("127.0.0.1", host.known_hosts, host.port), authority)


TRANSPORTS: dict[str, Callable[[LoginHost], Transport]] = {
    "sudo": SudoOnLoginHost,
    "ssh-key": by_key,
    "ssh-certificate": by_certificate,
}


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest, login_host: LoginHost) -> Transport:
    return TRANSPORTS[request.param](login_host)


async def refusal(transport: Transport, user: UnixUser) -> str:
    async with AgentPool(transport) as pool:
        with pytest.raises(AgentRefused) as raised:
            await pool.agent(user)
    return raised.value.detail


@pytest.mark.parametrize("user", [ALICE, BOB, CAROL], ids=["sh", "csh-with-60-KiB-banner", "fish"])
async def test_a_command_runs_as_its_user_in_a_clean_environment(
    transport: Transport, user: UnixUser
) -> None:
    async with AgentPool(transport) as pool:
        agent = await pool.agent(user)
        who = await agent.run(["id", "-u"], deadline=60)
        env = await agent.run(["env"], env={"ONLY": "this, 'that'\n☃"}, deadline=60)
        base = await agent.run(["/usr/bin/env"], deadline=60)
    assert who.stdout == b"%d\n" % user.uid
    assert env.stdout.decode() == "ONLY=this, 'that'\n☃\n"
    names = {line.partition("=")[0] for line in base.stdout.decode().splitlines()}
    assert names == {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG"}
    assert f"HOME=/home/{user.name}" in base.stdout.decode()


async def test_a_user_below_min_uid_is_refused_with_the_reason(login_host: LoginHost) -> None:
    assert "below min_uid 1000" in await refusal(SudoOnLoginHost(login_host), LEGACY)


async def test_sudo_refuses_who_is_not_of_the_group(login_host: LoginHost) -> None:
    words = await refusal(SudoOnLoginHost(login_host), MALLORY)
    assert "password is required" in words or "not allowed" in words


def test_a_user_whom_sudo_does_not_know_at_present_is_one_to_try_again() -> None:
    """Red-box knows the user: the directory has just gone away, and a refusal would fail submits for good."""
    assert not SudoTransport().is_refusal(1, "sudo: unknown user alice")
    assert not SudoTransport().is_refusal(1, "sudo: unknown user: alice\nsudo: unable to initialize policy")
    assert SudoTransport().is_refusal(1, "Sorry, user redbox is not allowed to execute that as alice.")


@pytest.mark.parametrize("name", ["root", "#0", "-s", "%redbox-users", "alice bob", "alice\n", ""])
async def test_names_that_mean_something_else_are_never_passed_on(transport: Transport, name: str) -> None:
    assert await refusal(transport, UnixUser(name, ALICE.uid))


async def test_an_account_that_has_another_uid_than_the_mapping_says_is_refused(transport: Transport) -> None:
    assert "runs as uid 4101, not 4999" in await refusal(transport, UnixUser("alice", 4999))


@pytest.mark.parametrize("arguments", [["--anything"], ["-c", "id"]])
async def test_sudo_allows_the_agent_without_arguments_only(
    login_host: LoginHost, arguments: list[str]
) -> None:
    class WithArguments(SudoOnLoginHost):
        def argv(self, user: UnixUser) -> tuple[str, ...]:
            return (*super().argv(user), *arguments)

    assert await refusal(WithArguments(login_host), ALICE)


async def test_a_certificate_is_no_way_in_for_who_is_not_of_the_group(login_host: LoginHost) -> None:
    assert "sshd refuses mallory" in await refusal(by_certificate(login_host), MALLORY)


async def test_a_certificate_of_another_ca_is_refused(login_host: LoginHost) -> None:
    stranger = CertificateAuthority(asyncssh.generate_private_key("ssh-ed25519"), ["127.0.0.1"])
    assert "sshd refuses alice" in await refusal(by_certificate(login_host, stranger), ALICE)


async def test_a_certificate_is_good_from_the_servers_addresses_only(login_host: LoginHost) -> None:
    elsewhere = CertificateAuthority(login_host.ca_key, ["10.1.2.3"])
    assert "sshd refuses alice" in await refusal(by_certificate(login_host, elsewhere), ALICE)


@pytest.mark.parametrize("shift_s", [-CA_LIFETIME_S, CA_LIFETIME_S])
async def test_a_certificate_is_good_for_five_minutes_only(login_host: LoginHost, shift_s: float) -> None:
    shifted = CertificateAuthority(login_host.ca_key, ["127.0.0.1"], clock=lambda: time.time() + shift_s)
    assert "sshd refuses alice" in await refusal(by_certificate(login_host, shifted), ALICE)


async def test_a_certificate_runs_nothing_but_the_agent(login_host: LoginHost) -> None:
    credential = CertificateAuthority(login_host.ca_key, ["127.0.0.1"]).credential(ALICE)
    async with asyncssh.connect(
        "127.0.0.1",
        login_host.port,
        username="alice",
        client_keys=[(credential.key, credential.certificate)],
        known_hosts=str(login_host.known_hosts),
        config=None,
        agent_path=None,
    ) as connection:
        answer = await connection.run("echo another command", input="0\n")
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_connection("127.0.0.1", login_host.port)
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.create_process(term_type="xterm")
    assert "another command" not in str(answer.stdout)


async def test_an_unknown_host_key_is_refused(login_host: LoginHost, tmp_path: Path) -> None:
    other = tmp_path / "known_hosts"
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    other.write_text(f"[127.0.0.1]:{login_host.port} {key}")
    transport = SshTransport(LoginNode("127.0.0.1", other, login_host.port), KeyDirectory(login_host.keys))
    assert "host key" in await refusal(transport, ALICE)


async def test_a_key_that_others_may_read_is_not_used(login_host: LoginHost, tmp_path: Path) -> None:
    (tmp_path / "alice").write_bytes((login_host.keys / "alice").read_bytes())
    (tmp_path / "alice").chmod(0o644)
    transport = SshTransport(
        LoginNode("127.0.0.1", login_host.known_hosts, login_host.port), KeyDirectory(tmp_path)
    )
    assert "chmod 600" in await refusal(transport, ALICE)


async def test_a_banner_longer_than_64_kib_is_no_agent(login_host: LoginHost) -> None:
    async with AgentPool(by_key(login_host)) as pool:
        with pytest.raises(AgentUnavailable, match="no hello within 65536 bytes"):
            await pool.agent(DAVE)


async def test_a_login_node_that_is_away_is_unavailable_and_not_refused(login_host: LoginHost) -> None:
    node = LoginNode("127.0.0.1", login_host.known_hosts, 1)
    async with AgentPool(SshTransport(node, KeyDirectory(login_host.keys))) as pool:
        with pytest.raises(AgentUnavailable, match=r"no connection to 127\.0\.0\.1:1: "):
            await pool.agent(ALICE)


async def test_ssh_uses_no_agent_no_proxy_and_no_file_of_the_servers_account(
    login_host: LoginHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others may have put into its environment or its home: the way is that of the settings."""
    proxied = tmp_path / "proxied"
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(f"Host *\nForwardAgent yes\nProxyCommand touch {proxied}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    with socket.socket(socket.AF_UNIX) as ssh_agent:
        ssh_agent.bind(str(tmp_path / "agent"))
        ssh_agent.listen()
        ssh_agent.settimeout(0)
        async with AgentPool(by_key(login_host)) as pool:
            sockets = await (await pool.agent(ALICE)).run(
                ["find", "/tmp", "-user", "alice", "-type", "s"], deadline=60
            )
        with pytest.raises(BlockingIOError):
            ssh_agent.accept()
    assert sockets.stdout == b""
    assert not proxied.exists()


async def test_self_acts_for_its_own_uid_only() -> None:
    assert "cannot act for another user" in await refusal(
        SelfTransport(), UnixUser("other", os.geteuid() + 1)
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="root only")
async def test_nobody_acts_as_root() -> None:
    assert "root" in await refusal(SelfTransport(), UnixUser("root", 0))
