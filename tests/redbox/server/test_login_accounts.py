"""Accounts of the login node, looked up by the observer's agent over the real sshd."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncssh
import pytest

from redbox.agents.pool import AgentPool
from redbox.agents.protocol.answers import CommandResult
from redbox.agents.transports.ssh import LoginNode, SshTransport
from redbox.agents.transports.ssh_ca import KeyDirectory
from redbox.callers.errors import AuthenticationUnavailable
from redbox.callers.unix_accounts import AccountLookup, UnixAccount
from redbox.core.clock import SystemClock
from redbox.jobs.store.journal import Journal
from redbox.server.login_accounts import LoginNodeLookup, login_node_accounts
from redbox.server.observer import observer_of
from redbox.settings import RedboxSettings
from tests.redbox.agents.harness import until
from tests.redbox.agents.login_host import ALICE, LEGACY, MALLORY, LoginHost
from tests.redbox.agents.sshd import key_of_alice, sshd


def transport_to(host: LoginHost, port: int | None = None) -> SshTransport:
    node = LoginNode("127.0.0.1", host.known_hosts, port or host.port)
    return SshTransport(node, KeyDirectory(host.keys))


def settings(host: LoginHost, folder: Path, observer: str = "alice") -> RedboxSettings:
    ssh = {
        "host": "127.0.0.1",
        "port": host.port,
        "known_hosts": host.known_hosts,
        "key_directory": host.keys,
        "observer": observer,
        "accounts": "login_node",
    }
    listen = {"port": 0, "unix_socket": None}
    return RedboxSettings.model_validate(
        {
            "name": "hpc1",
            "listen": listen,
            "agents": {"transport": "ssh", "ssh": ssh},
            "jobs": {"journal": folder},
        }
    )


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(tmp_path)
    yield journal
    journal.close()


async def test_accounts_and_groups_are_those_of_the_login_node(login_host: LoginHost) -> None:
    async with AgentPool(transport_to(login_host)) as pool:
        accounts = login_node_accounts(pool, ALICE, SystemClock())

        def look(host: AccountLookup) -> tuple[UnixAccount | None, ...]:
            names = (MALLORY.name, LEGACY.name, "nobody-of-that-name", "--help", "0")
            return (host.account_of(ALICE.uid), *(host.account(name) for name in names))

        found = await accounts.evaluate(look)
        group = await accounts.evaluate(lambda host: host.group("redbox-users"))
        missing = await accounts.evaluate(lambda host: host.group("nobody-of-that-name"))
    assert found[0] == UnixAccount("alice", ALICE.uid, frozenset({ALICE.uid, 4000}))
    assert found[1] == UnixAccount("mallory", MALLORY.uid, frozenset({MALLORY.uid}))
    assert found[2] == UnixAccount("legacy", LEGACY.uid, frozenset({LEGACY.uid, 4000}))
    assert found[3:] == (None, None, None), "not found, an option, root by its number"
    assert (group, missing) == (4000, None)


async def test_a_login_node_that_is_away_is_an_outage_and_no_missing_account(login_host: LoginHost) -> None:
    async with AgentPool(transport_to(login_host, port=1)) as pool:
        accounts = login_node_accounts(pool, ALICE, SystemClock())
        with pytest.raises(AuthenticationUnavailable, match="the user database of the login node does not"):
            await accounts.evaluate(lambda host: host.account("alice"))


@pytest.mark.parametrize(
    "answer",
    [
        CommandResult(2, b"", b"", 0.0),
        CommandResult(0, b"alice:x:not-a-number:1:::\n", b"", 0.0),
        CommandResult(0, b"\xff\xfe", b"", 0.0),
        CommandResult(1, b"", b"getent: out of memory", 0.0),
        CommandResult(-9, b"", b"", 0.0),
        CommandResult(0, b"alice:x:" + b"9" * 5000 + b":1:::\n", b"", 0.0),
        CommandResult(0, b"alice:x:2001:1:::\nbob:x:2002:1:::\n", b"", 0.0),
    ],
)
def test_only_getents_own_answer_says_that_there_is_no_account(answer: CommandResult) -> None:
    def run(argv: Sequence[str]) -> CommandResult:
        assert argv[0] == "getent"
        return answer

    lookup = LoginNodeLookup(run)
    if answer.code == 2:
        assert lookup.account("alice") is None
    else:
        with pytest.raises(OSError, match="on the login node"):
            lookup.account("alice")


@pytest.mark.parametrize(
    ("entry", "groups"),
    [
        ("bob:x:2002:1:::", "2002"),
        ("root:x:2001:1:::", "2001"),
        ("ALICE:x:2001:1:::", "2001"),
        ("alice\nbob:x:2001:1:::", "2001"),
        ("alice:x:2001:1:::", "2001 " + "9" * 5000),
    ],
)
def test_no_answer_makes_one_user_another(entry: str, groups: str) -> None:
    """The observer's own account may answer what it likes: jobs of alice must not run as bob."""

    def run(argv: Sequence[str]) -> CommandResult:
        shown = entry if argv[0] == "getent" else groups
        return CommandResult(0, shown.encode() + b"\n", b"", 0.0)

    with pytest.raises(OSError, match="on the login node"):
        LoginNodeLookup(run).account("alice")


def test_the_account_of_a_uid_has_that_uid() -> None:
    def run(argv: Sequence[str]) -> CommandResult:
        return CommandResult(0, b"2001" if argv[0] == "id" else b"alice:x:2001:1:::", b"", 0.0)

    assert LoginNodeLookup(run).account_of(2001) == UnixAccount("alice", 2001, frozenset({2001}))
    with pytest.raises(OSError, match="of uid 2001"):
        LoginNodeLookup(run).account_of(2002)


async def test_the_observers_uid_is_found_there_and_kept_for_a_start_without_the_login_node(
    login_host: LoginHost, tmp_path: Path, journal: Journal
) -> None:
    given = settings(login_host, tmp_path)
    assert await observer_of(given, transport_to(login_host), journal) == ALICE
    journal.close()
    again = Journal(tmp_path)
    try:
        async with asyncio.timeout(60):
            assert await observer_of(given, transport_to(login_host, port=1), again) == ALICE
    finally:
        again.close()


async def test_a_first_start_waits_for_the_right_key(
    login_host: LoginHost, tmp_path: Path, journal: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    """An end would be a start again, and a login that fails again."""
    keys = key_of_alice(tmp_path / "keys", asyncssh.generate_private_key("ssh-ed25519"))
    given = settings(login_host, tmp_path)
    with sshd(login_host, tmp_path / "a") as node:
        found = asyncio.create_task(observer_of(given, node.transport(keys=keys), journal))
        await until(lambda: "Failed publickey for alice" in node.log)
        assert not found.done()
        shutil.copy(login_host.keys / "alice", keys / "new")
        (keys / "new").replace(keys / "alice")
        async with asyncio.timeout(60):
            assert await found == ALICE
        assert node.log.count("Failed publickey for alice") <= 2
    assert "authorized_keys" in capsys.readouterr().out


def test_a_red_box_without_accounts_serves_no_users_of_its_own_host(
    login_host: LoginHost, tmp_path: Path
) -> None:
    document = settings(login_host, tmp_path).model_dump(mode="json")
    with pytest.raises(ValueError, match=r"needs listen\.unix_socket: null"):
        RedboxSettings.model_validate(document | {"listen": {"port": 0}})
