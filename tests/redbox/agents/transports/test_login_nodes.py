"""Login nodes as they are: several hosts, jump hosts, limits of sshd, shells that talk, keys that change."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from redbox.agents.errors import AgentRefused, AgentUnavailable, SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.agents.settings import PoolSettings
from redbox.agents.transports.ssh import LoginNode, SshTransport
from redbox.agents.transports.ssh_ca import CertificateAuthority, KeyDirectory
from redbox.agents.transports.ssh_login import SshHost
from redbox.core.domain import UnixUser
from tests.ports import free_port
from tests.redbox.agents.harness import until
from tests.redbox.agents.login_host import ALICE, BOB, LoginHost
from tests.redbox.agents.sshd import LOOPBACK, failure, key_of_alice, sshd, whoami

# ---------------------------------------------------------------------------- what sshd asks for, and refuses


NO_PAUSE = PoolSettings(first_backoff_s=0.0, longest_backoff_s=0.0)


async def test_a_key_that_is_not_in_authorized_keys_is_named_as_that(
    login_host: LoginHost, tmp_path: Path
) -> None:
    keys = key_of_alice(tmp_path / "keys", asyncssh.generate_private_key("ssh-ed25519"))
    with sshd(login_host, tmp_path / "a") as node:
        refused = await failure(node.transport(keys=keys))
    assert "not in this account's authorized_keys" in refused.detail


async def test_a_second_factor_is_named_with_what_the_site_would_have_to_allow(
    login_host: LoginHost, tmp_path: Path
) -> None:
    with sshd(
        login_host, tmp_path / "a", "AuthenticationMethods publickey,password\nPasswordAuthentication yes"
    ) as node:
        refused = await failure(node.transport())
    assert isinstance(refused, AgentRefused)
    assert "accepted the key and asks for a password too" in refused.detail
    assert "AuthenticationMethods publickey" in refused.detail


async def test_an_sshd_that_takes_passwords_only_is_named_as_that(
    login_host: LoginHost, tmp_path: Path
) -> None:
    with sshd(login_host, tmp_path / "a", "PubkeyAuthentication no\nPasswordAuthentication yes") as node:
        refused = await failure(node.transport())
        assert "Failed password" not in node.log
    assert "takes no public keys here, only a password" in refused.detail
    assert "PubkeyAuthentication" in refused.detail


async def test_an_unknown_account_is_refused_as_a_wrong_key_is(login_host: LoginHost, tmp_path: Path) -> None:
    nobody = UnixUser("nosuchuser", 4999)
    keys = tmp_path / "keys"
    key_of_alice(keys, asyncssh.generate_private_key("ssh-ed25519")).joinpath("alice").rename(
        keys / "nosuchuser"
    )
    with sshd(login_host, tmp_path / "a") as node:
        refused = await failure(node.transport(keys=keys), nobody)
    assert "sshd refuses nosuchuser" in refused.detail


async def test_a_forced_command_is_named_by_what_it_prints(login_host: LoginHost, tmp_path: Path) -> None:
    with sshd(login_host, tmp_path / "a", "ForceCommand echo 'Use the web portal.'") as node:
        refused = await failure(node.transport())
    assert "Use the web portal." in refused.detail
    assert "ForceCommand" in refused.detail


async def test_a_host_without_python_is_named_as_that(login_host: LoginHost, tmp_path: Path) -> None:
    with sshd(login_host, tmp_path / "a", "ForceCommand exec /usr/bin/env -i /usr/bin/no-python3") as node:
        refused = await failure(node.transport())
    assert isinstance(refused, AgentRefused)
    assert "no-python3" in refused.detail
    assert "Python 3.6" in refused.detail


async def test_a_host_that_is_not_in_dns_is_named(login_host: LoginHost, tmp_path: Path) -> None:
    with sshd(login_host, tmp_path / "a") as node:
        away = await failure(node.transport("no-such-host.invalid"))
    assert isinstance(away, AgentUnavailable)
    assert "the name no-such-host.invalid has no address" in away.detail


# --------------------------------------------------------------------------------------------- host keys


async def test_a_host_key_that_changed_is_told_from_an_unknown_one(
    login_host: LoginHost, tmp_path: Path
) -> None:
    with sshd(login_host, tmp_path / "a") as node:
        known = node.known_hosts.read_text()
        other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
        node.known_hosts.write_text(f"[127.0.0.1]:{node.port} {other}")
        assert "has changed, or another host answers" in (await failure(node.transport())).detail
        node.known_hosts.write_text(f"somewhere.example {other}")
        assert "ssh-keyscan" in (await failure(node.transport())).detail
        transport = node.transport()
        await failure(transport)
        node.known_hosts.write_text(known)  # read again, without a restart
        assert await whoami(transport) == "alice"


@pytest.mark.parametrize("key_type", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"])
async def test_host_keys_and_user_keys_of_each_kind(
    login_host: LoginHost, tmp_path: Path, key_type: str
) -> None:
    key = asyncssh.generate_private_key(key_type)
    keys = key_of_alice(tmp_path / "keys", key)
    authorized = key.export_public_key().decode().strip()
    lines = f"AuthorizedKeysCommand /usr/bin/echo {authorized}\nAuthorizedKeysCommandUser root"
    with sshd(login_host, tmp_path / "a", lines, key_type=key_type) as node:
        assert await whoami(node.transport(keys=keys)) == "alice"


async def test_an_sshd_without_a_common_algorithm_is_named(login_host: LoginHost, tmp_path: Path) -> None:
    with sshd(login_host, tmp_path / "a", "KexAlgorithms diffie-hellman-group1-sha1") as node:
        refused = await failure(node.transport())
    assert "no algorithm in common" in refused.detail


# ------------------------------------------------------------------------------- certificates that end


def certified(
    folder: Path, authority: asyncssh.SSHKey, principals: list[str], after: float, before: float
) -> Path:
    key = asyncssh.generate_private_key("ssh-ed25519")
    keys = key_of_alice(folder, key)
    certificate = authority.generate_user_certificate(
        key, "alice", principals=principals, valid_after=int(after), valid_before=int(before)
    )
    (keys / "alice-cert.pub").write_bytes(certificate.export_certificate())
    return keys


async def test_a_certificate_of_the_site_is_used_and_its_end_is_told(
    login_host: LoginHost, tmp_path: Path
) -> None:
    now = time.time()
    keys = certified(tmp_path / "keys", login_host.ca_key, ["alice"], now - 60, now + 86400)
    transport = SshTransport(sshd_of(login_host), KeyDirectory(keys))
    assert await whoami(transport) == "alice"
    assert transport.credentials_expire_at() == int(now + 86400)


def sshd_of(host: LoginHost) -> LoginNode:
    return LoginNode(LOOPBACK, host.known_hosts, host.port)


@pytest.mark.parametrize(
    ("principals", "shift_s", "words"),
    [
        (["bob"], 0, "is for bob, not for alice"),
        (["alice"], -7200, "expired at"),
        (["alice"], 7200, "compare the clocks"),
    ],
)
async def test_a_certificate_that_sshd_would_refuse_makes_no_login(
    login_host: LoginHost, tmp_path: Path, principals: list[str], shift_s: float, words: str
) -> None:
    now = time.time() + shift_s
    keys = certified(tmp_path / "keys", login_host.ca_key, principals, now - 60, now + 3600)
    with sshd(login_host, tmp_path / "a") as node:
        refused = await failure(node.transport(keys=keys))
        assert words in refused.detail
        assert "Connection from" not in node.log.partition("Server listening")[2].partition("\n")[2].replace(
            "Connection from 127.0.0.1", "", 1
        )  # the first one waited for the port


# ------------------------------------------------------------------ several hosts, a jump host, the shell


def name_has(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    real: Callable[..., Any] = socket.getaddrinfo

    def answers(host: str, port: int, *more: Any, **other: Any) -> Any:
        if host != "login.example":
            return real(host, port, *more, **other)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", answers)


async def test_of_several_hosts_the_one_that_answered_last_is_kept_until_it_is_gone(
    login_host: LoginHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    name_has(monkeypatch, "127.0.0.2", "127.0.0.3")
    with sshd(login_host, tmp_path / "b", address="127.0.0.3", port=port) as second:
        with sshd(login_host, tmp_path / "a", address="127.0.0.2", port=port) as first:
            known = first.known_hosts.read_text() + second.known_hosts.read_text()
            second.known_hosts.write_text(known)
            transport = second.transport("login.example")
            assert await whoami(transport) == "alice"
            assert "Accepted publickey" in first.log
        name_has(monkeypatch, "127.0.0.2", "127.0.0.3")
        assert await whoami(transport) == "alice"
        assert "Accepted publickey" in second.log
        with sshd(login_host, tmp_path / "c", address="127.0.0.2", port=port) as back:
            assert await whoami(transport) == "alice"
            assert "Accepted publickey" not in back.log
            assert second.log.count("Accepted publickey") == 2


async def test_an_outcome_of_one_host_is_found_on_another_that_shares_the_home(
    login_host: LoginHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the runtime directory, which each host has for itself and removes with the last login."""
    port = free_port()
    name_has(monkeypatch, "127.0.0.2", "127.0.0.3")
    runtime = f"/run/user/{ALICE.uid}"
    run(login_host, "install", "-d", "-m", "700", "-o", "alice", "-g", "alice", runtime)
    try:
        with sshd(login_host, tmp_path / "b", address="127.0.0.3", port=port) as second:
            with sshd(login_host, tmp_path / "a", address="127.0.0.2", port=port) as first:
                known_hosts = first.known_hosts.read_text() + second.known_hosts.read_text()
                second.known_hosts.write_text(known_hosts)
                transport = second.transport("login.example")
                async with AgentPool(transport) as pool:
                    await (await pool.agent(ALICE)).run(["id", "-un"], deadline=20, keep="of-the-first")
            run(login_host, "rm", "-rf", f"{runtime}/redbox-kept")
            async with AgentPool(transport) as pool:
                recorded = await (await pool.agent(ALICE)).recall("of-the-first")
            assert "Accepted publickey" in second.log
    finally:
        run(login_host, "rm", "-rf", runtime)
    assert recorded.completed is not None
    assert recorded.completed.stdout == b"alice\n"


async def test_a_login_node_that_restarts_costs_its_agents_and_nothing_else(
    login_host: LoginHost, tmp_path: Path
) -> None:
    port = free_port()
    with sshd(login_host, tmp_path / "a", port=port) as before:
        transport = before.transport()
        async with AgentPool(transport, NO_PAUSE) as pool:
            agent = await pool.agent(ALICE)
            pid = agent.hello.pid
            run(login_host, "kill", "-9", str(pid))
            await until(lambda: not agent.is_alive)
            assert (await pool.agent(ALICE)).hello.pid != pid
    with sshd(login_host, tmp_path / "b", port=port) as after:
        shutil.copy(after.known_hosts, before.known_hosts)
        assert await whoami(transport) == "alice"


async def test_a_jump_host_is_passed_and_each_host_key_is_checked(
    login_host: LoginHost, tmp_path: Path
) -> None:
    with (
        sshd(login_host, tmp_path / "j", "AllowTcpForwarding yes") as jump,
        sshd(login_host, tmp_path / "a") as node,
    ):
        transport = node.transport(jump=SshHost(LOOPBACK, jump.known_hosts, jump.port))
        assert await whoami(transport) == "alice"
        assert "Accepted publickey for alice" in jump.log
        unknown = node.transport(jump=SshHost(LOOPBACK, node.known_hosts, jump.port))
        assert "ssh-keyscan" in (await failure(unknown)).detail


async def test_a_jump_host_that_forwards_nothing_is_named(login_host: LoginHost, tmp_path: Path) -> None:
    with (
        sshd(login_host, tmp_path / "j", "AllowTcpForwarding no") as jump,
        sshd(login_host, tmp_path / "a") as node,
    ):
        away = await failure(node.transport(jump=SshHost(LOOPBACK, jump.known_hosts, jump.port)))
    assert "AllowTcpForwarding" in away.detail


async def test_a_certificate_for_the_jump_host_opens_connections_and_runs_nothing(
    login_host: LoginHost,
) -> None:
    credential = CertificateAuthority(login_host.ca_key, [LOOPBACK]).jump_credential(ALICE)
    assert credential.certificate is not None
    async with asyncssh.connect(
        LOOPBACK,
        login_host.port,
        username="alice",
        client_keys=[(credential.key, credential.certificate)],
        known_hosts=str(login_host.known_hosts),
        config=None,
        agent_path=None,
    ) as connection:
        ran = await connection.run("echo anything")
    assert ran.stdout == ""
    assert ran.exit_status != 0


async def test_tools_are_looked_for_where_the_settings_say_and_their_absence_names_the_setting(
    login_host: LoginHost, tmp_path: Path
) -> None:
    conf = "/etc/redbox/agent.conf"
    with sshd(login_host, tmp_path / "a") as node:
        saved = login_host.folder / "agent.conf"
        run(login_host, "mv", conf, str(saved))
        try:
            async with AgentPool(node.transport(path="/nowhere:/usr/bin")) as pool:
                agent = await pool.agent(ALICE)
                assert (await agent.run(["id", "-un"], deadline=60)).stdout == b"alice\n"
                with pytest.raises(SystemCallFailed) as missing:
                    await agent.run(["squeue-of-nowhere"], deadline=60)
        finally:
            run(login_host, "mv", str(saved), conf)
    assert "not found in /nowhere:/usr/bin" in missing.value.detail
    assert "agents.ssh.path" in missing.value.detail


def run(host: LoginHost, *argv: str) -> None:
    subprocess.run(host.enter(*argv), check=True)


async def test_a_home_over_quota_does_not_keep_agents_from_working(
    login_host: LoginHost, tmp_path: Path
) -> None:
    """Nothing has to be written there: an outcome that cannot be kept in a file is kept in the agent."""
    with sshd(login_host, tmp_path / "a") as node:
        run(login_host, "mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=1", "tmpfs", f"/home/{BOB.name}")
        try:
            async with AgentPool(node.transport()) as pool:
                agent = await pool.agent(BOB)
                ran = await agent.run(["id", "-un"], deadline=20, keep="over-quota")
                recorded = await agent.recall("over-quota")
        finally:
            run(login_host, "umount", "--lazy", f"/home/{BOB.name}")
    assert ran.stdout == b"bob\n"
    assert recorded.completed is not None


async def test_an_agent_leaves_nothing_on_the_host_but_the_records_of_submits(
    login_host: LoginHost, tmp_path: Path
) -> None:
    def files() -> set[str]:
        found = subprocess.run(
            login_host.enter("find", "/home/carol", "/tmp", "/run", "-user", "carol"),
            check=False,  # files that go meanwhile are an error of find
            capture_output=True,
            text=True,
        )
        return set(found.stdout.split())

    carol = UnixUser("carol", 4103)
    with sshd(login_host, tmp_path / "a") as node:
        before = files()
        async with AgentPool(node.transport()) as pool:
            agent = await pool.agent(carol)
            await agent.run(["id"], deadline=60)
            await agent.run(["id"], deadline=20, keep="a-submit")
        left = {path for path in files() - before if "/fish" not in path and "/.cache" not in path}
    state = "/home/carol/.local/state"
    assert left - {"/home/carol/.local", state, "/home/carol/.config", "/home/carol/.local/share"} == {
        f"{state}/redbox-kept",
        f"{state}/redbox-kept/a-submit",
    }
