"""Look-ups in the host's user database: remembered, bounded, and patient with one that hangs."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from redbox.callers.errors import AuthenticationUnavailable
from redbox.callers.unix_accounts import (
    AccountLookup,
    AccountResolver,
    NssLookup,
    NssPolicy,
    OutageDetectingLookup,
    UnixAccount,
)
from tests.redbox.callers.factories import StoppedClock

ALICE = UnixAccount("alice", 2001, frozenset({2001, 500}))


class Database:
    """A user database that can be made to hang."""

    def __init__(self) -> None:
        self.answer: UnixAccount | None = ALICE
        self.asked = 0
        self.answers = threading.Event()
        self.answers.set()

    def account(self, name: str) -> UnixAccount | None:
        self.asked += 1
        self.answers.wait(60)
        return self.answer if name == "alice" else None

    def account_of(self, uid: int) -> UnixAccount | None:
        raise OSError(5, f"the directory server is away: {uid}")

    def group(self, name: str) -> int | None:
        return 500 if name == "redbox-users" else None


@pytest.fixture
def database() -> Iterator[Database]:
    made = Database()
    yield made
    made.answers.set()


def asks_for(name: str) -> Callable[[AccountLookup], UnixAccount | None]:
    return lambda accounts: accounts.account(name)


def alice(accounts: AccountLookup) -> UnixAccount | None:
    return accounts.account("alice")


async def test_a_decision_sees_what_the_host_says(database: Database) -> None:
    directory = AccountResolver(database, NssPolicy(), StoppedClock())

    def is_member(accounts: AccountLookup) -> bool:
        account = accounts.account("alice")
        return account is not None and accounts.group("redbox-users") in account.groups

    assert await directory.evaluate(is_member)
    assert await directory.evaluate(lambda accounts: accounts.account("bob")) is None
    assert await directory.evaluate(lambda accounts: accounts.group("gone")) is None


async def test_an_answer_is_believed_for_half_a_minute(database: Database) -> None:
    clock = StoppedClock()
    directory = AccountResolver(database, NssPolicy(), clock)
    for _ in range(3):
        await directory.evaluate(alice)
    assert database.asked == 1
    database.answer = None
    clock.pass_s(30)
    assert await directory.evaluate(alice) is None


async def test_many_who_ask_at_once_ask_the_host_once_each_slot(database: Database) -> None:
    directory = AccountResolver(database, NssPolicy(max_concurrent=2), StoppedClock())
    answers = await asyncio.gather(*(directory.evaluate(alice) for _ in range(50)))
    assert answers == [ALICE] * 50
    assert database.asked <= 2


async def test_a_database_that_hangs_is_a_503_and_not_a_hang(database: Database) -> None:
    database.answers.clear()
    directory = AccountResolver(database, NssPolicy(deadline_s=0.02), StoppedClock())
    with pytest.raises(AuthenticationUnavailable, match="user database of this host did not answer within"):
        await directory.evaluate(alice)


async def test_hanging_look_ups_start_no_further_threads(database: Database) -> None:
    database.answers.clear()
    directory = AccountResolver(database, NssPolicy(deadline_s=0.01, max_concurrent=3), StoppedClock())
    for _ in range(10):
        with pytest.raises(AuthenticationUnavailable):
            await directory.evaluate(alice)
    while database.asked < 3:  # noqa: ASYNC110 (a thread may begin late)
        await asyncio.sleep(0.01)
    assert database.asked == 3


async def test_a_database_that_answers_again_is_asked_again(database: Database) -> None:
    database.answers.clear()
    directory = AccountResolver(database, NssPolicy(deadline_s=0.01, max_concurrent=1), StoppedClock())
    with pytest.raises(AuthenticationUnavailable):
        await directory.evaluate(alice)
    database.answers.set()
    while True:
        try:
            assert await directory.evaluate(alice) == ALICE
        except AuthenticationUnavailable:
            continue
        break


class NoMoreThreads(threading.Thread):
    """As on a host that is at its limit of tasks."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


async def test_a_host_without_threads_for_a_while_shuts_nobody_out(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = StoppedClock()
    directory = AccountResolver(database, NssPolicy(max_concurrent=2), clock)
    await directory.evaluate(alice)
    clock.pass_s(30)
    with monkeypatch.context() as patched:
        patched.setattr(threading, "Thread", NoMoreThreads)
        for _ in range(3):
            assert await directory.evaluate(alice) == ALICE
            with pytest.raises(AuthenticationUnavailable):
                await directory.evaluate(lambda accounts: accounts.account("bob"))
    assert await directory.evaluate(lambda accounts: accounts.group("redbox-users")) == 500


async def test_the_last_answer_counts_for_an_hour_while_the_database_is_away(database: Database) -> None:
    clock = StoppedClock()
    directory = AccountResolver(database, NssPolicy(), clock)
    await directory.evaluate(alice)
    database.answers.clear()
    directory._policy = NssPolicy(deadline_s=0.02)
    clock.pass_s(3600)
    assert await directory.evaluate(alice) == ALICE
    clock.pass_s(1)
    with pytest.raises(AuthenticationUnavailable):
        await directory.evaluate(alice)


async def test_a_database_that_fails_is_a_503(database: Database) -> None:
    directory = AccountResolver(database, NssPolicy(), StoppedClock())
    with pytest.raises(AuthenticationUnavailable):
        await directory.evaluate(lambda accounts: accounts.account_of(2001))


def test_this_hosts_accounts_are_found_with_their_groups() -> None:
    me = pwd.getpwuid(os.getuid())
    found = NssLookup().account(me.pw_name)
    assert found is not None
    assert (found.uid, me.pw_gid in found.groups) == (me.pw_uid, True)
    assert NssLookup().account_of(me.pw_uid) == found
    assert NssLookup().account("nobody-of-this-name") is None
    assert NssLookup().account_of(4_000_000) is None
    assert NssLookup().group("no-group-of-this-name") is None


def test_a_look_up_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    program = """
import asyncio, threading
from redbox.callers.unix_accounts import AccountResolver, NssPolicy
from redbox.callers.errors import AuthenticationUnavailable
from redbox.core.clock import SystemClock
class Hangs:
    def account(self, name): threading.Event().wait()
async def main():
    directory = AccountResolver(Hangs(), NssPolicy(deadline_s=0.01), SystemClock())
    try:
        await directory.evaluate(lambda accounts: accounts.account("x"))
    except AuthenticationUnavailable:
        print("503")
asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert "503" in ended.stdout


class Directory:
    """A directory server behind NSS that fails fast: everybody is gone at once."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)
        self.is_away = False

    def account(self, name: str) -> UnixAccount | None:
        is_there = name == "root" or (name in self.names and not self.is_away)
        return UnixAccount(name, 2001, frozenset()) if is_there else None

    def account_of(self, uid: int) -> UnixAccount | None:
        raise NotImplementedError

    def group(self, name: str) -> int | None:  # noqa: ARG002
        return None


@pytest.fixture
def server() -> Directory:
    return Directory("rb-alice", "rb-bob")


async def test_a_directory_that_has_lost_all_whom_it_had_is_not_believed(server: Directory) -> None:
    clock = StoppedClock()
    directory = AccountResolver(OutageDetectingLookup(server), NssPolicy(), clock)
    found = [await directory.evaluate(asks_for(name)) for name in server.names]
    server.is_away = True
    clock.pass_s(30)
    for name in server.names:
        assert await directory.evaluate(asks_for(name)) in found
    with pytest.raises(AuthenticationUnavailable):
        await directory.evaluate(asks_for("rb-carol"))
    server.is_away = False
    assert await directory.evaluate(asks_for("rb-carol")) is None


def test_a_directory_that_is_away_when_red_box_starts_is_not_believed_either(server: Directory) -> None:
    """By the users of the jobs that there are: else new jobs of theirs fail for good."""
    server.is_away = True
    host = OutageDetectingLookup(server, job_users=["root", "rb-alice", "rb-bob"])
    with pytest.raises(OSError, match="rb-bob"):
        host.account("rb-alice")
    with pytest.raises(OSError, match="rb-alice"):
        host.group("rb-users")
    server.is_away = False
    assert host.account("rb-carol") is None
    assert host.account("rb-alice")
    server.names.remove("rb-bob")
    assert host.account("rb-bob") is None
    only_of_this_host = OutageDetectingLookup(server, job_users=["root"])
    server.is_away = True
    assert only_of_this_host.account("rb-carol") is None


def test_who_was_removed_is_nobody_while_others_are_there(server: Directory) -> None:
    host = OutageDetectingLookup(server)
    assert host.account("rb-alice")
    assert host.account("rb-bob")
    server.names.remove("rb-bob")
    assert host.account("rb-bob") is None
    assert host.group("rb-nobodys") is None


def test_an_account_of_this_hosts_own_file_proves_nothing(server: Directory) -> None:
    host = OutageDetectingLookup(server)
    assert host.account("root")
    assert host.account("rb-alice")
    server.is_away = True
    with pytest.raises(OSError, match="rb-alice"):
        host.account("rb-carol")
    assert host.account("rb-alice") is None  # it is the only one that could tell
