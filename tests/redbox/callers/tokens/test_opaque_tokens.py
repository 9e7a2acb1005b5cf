"""Opaque tokens: shown once, kept as a hash, worthless when revoked or expired."""

from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.callers.errors import (
    AuthenticationUnavailable,
    TokenFault,
    TokenFileError,
    TokenNotFound,
    Unauthenticated,
)
from redbox.callers.identities import TokenHolder
from redbox.callers.tokens.opaque_tokens import PREFIX, TokenStore
from redbox.core.clock import SystemClock
from tests.redbox.callers.factories import StoppedClock

DAY_S = 86_400


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def test_a_token_is_its_users(path: Path) -> None:
    store = TokenStore(path, StoppedClock())
    made = store.create("alice", DAY_S)
    assert store.holder(made.secret) == TokenHolder(made.record.id, "alice")


def test_the_secret_is_not_kept(path: Path) -> None:
    made = TokenStore(path, StoppedClock()).create("alice", DAY_S)
    secret = made.secret.removeprefix(f"{PREFIX}{made.record.id}_")  # which may hold a "_" itself
    assert len(secret) == 43
    assert secret not in path.read_text()


def test_the_file_is_its_owners_alone(path: Path) -> None:
    os.umask(os.umask(0))
    TokenStore(path, StoppedClock()).create("alice", DAY_S)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir() if "lock" not in entry.name] == ["tokens.json"]


def test_a_token_that_root_makes_can_be_read_by_the_server(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    os.chown(path.parent, 2001, 2001)
    TokenStore(path, StoppedClock()).create("alice", DAY_S)
    assert path.stat().st_uid == 2001


def test_a_token_ends_with_its_time(path: Path) -> None:
    clock = StoppedClock()
    store = TokenStore(path, clock)
    made = store.create("alice", DAY_S)
    clock.pass_s(DAY_S)
    with pytest.raises(Unauthenticated, match="has expired: create a new one") as refusal:
        store.holder(made.secret)
    assert refusal.value.fault is TokenFault.EXPIRED


def test_a_revoked_token_is_refused_by_the_server_that_runs(path: Path) -> None:
    server, command = TokenStore(path, StoppedClock()), TokenStore(path, StoppedClock())
    made = command.create("alice", DAY_S)
    other = command.create("bob", DAY_S)
    server.holder(made.secret)
    command.revoke(made.record.id)
    with pytest.raises(Unauthenticated, match="was revoked") as refusal:
        server.holder(made.secret)
    assert refusal.value.fault is TokenFault.REVOKED
    assert server.holder(other.secret).user == "bob"


def test_revoking_twice_keeps_the_first_time(path: Path) -> None:
    clock = StoppedClock()
    store = TokenStore(path, clock)
    made = store.create("alice", DAY_S)
    first = store.revoke(made.record.id)
    clock.pass_s(60)
    assert store.revoke(made.record.id) == first
    assert store.list() == (first,)


def test_what_was_never_made_cannot_be_revoked(path: Path) -> None:
    with pytest.raises(TokenNotFound, match="redbox token list"):
        TokenStore(path, StoppedClock()).revoke("abc")


def test_anothers_secret_does_not_fit(path: Path) -> None:
    store = TokenStore(path, StoppedClock())
    alice, bob = store.create("alice", DAY_S), store.create("bob", DAY_S)
    mixed = f"rbt_{alice.record.id}_{bob.secret[-43:]}"
    with pytest.raises(Unauthenticated) as refusal:
        store.holder(mixed)
    assert refusal.value.fault is TokenFault.SIGNATURE


def test_an_unknown_token_and_a_wrong_secret_are_told_apart_by_nobody(path: Path) -> None:
    store = TokenStore(path, StoppedClock())
    made = store.create("alice", DAY_S)
    reasons = []
    for wrong in (f"rbt_{'a' * 10}_{'A' * 43}", f"rbt_{made.record.id}_{'A' * 43}"):
        with pytest.raises(Unauthenticated) as refusal:
            store.holder(wrong)
        reasons.append(str(refusal.value))
    assert reasons[0] == reasons[1]


@given(st.text())
def test_text_that_only_begins_like_a_token_is_refused(rest: str) -> None:
    with pytest.raises(Unauthenticated):
        TokenStore(Path("/nonexistent/tokens.json"), StoppedClock()).holder("rbt_" + rest)


def test_a_damaged_file_lets_nobody_in_and_is_not_overwritten(path: Path) -> None:
    store = TokenStore(path, StoppedClock())
    made = store.create("alice", DAY_S)
    path.write_text('{"tokens": [{"id": 1}]}')
    with pytest.raises(AuthenticationUnavailable, match="is not a valid file of tokens"):
        store.holder(made.secret)
    with pytest.raises(TokenFileError):
        store.create("bob", DAY_S)
    assert path.read_text() == '{"tokens": [{"id": 1}]}'


@pytest.mark.parametrize(
    ("lives_s", "note", "words"),
    [
        (0, "", "longer than 0"),
        (10_000 * 366 * DAY_S, "for ever", "before the year 10000"),
        (DAY_S, os.fsdecode(b"caf\xe9"), "not in UTF-8"),
    ],
)
def test_a_token_that_cannot_be_shown_or_stored_is_not_made(
    path: Path, lives_s: float, note: str, words: str
) -> None:
    store = TokenStore(path, StoppedClock())
    made = store.create("alice", DAY_S)
    with pytest.raises(ValueError, match=words):
        store.create("alice", lives_s, note=note)
    assert TokenStore(path, StoppedClock()).list() == (made.record,)


def test_a_file_that_may_be_there_does_not_count_as_empty(tmp_path: Path) -> None:
    """As in a folder of another account: neither is the list empty, nor is a token unknown."""
    (tmp_path / "folder").write_text("not one")
    store = TokenStore(tmp_path / "folder/tokens.json", StoppedClock())
    with pytest.raises(TokenFileError, match="cannot be read: Not a directory"):
        store.list()
    with pytest.raises(AuthenticationUnavailable):
        store.holder(f"rbt_{'a' * 10}_{'A' * 43}")


def _make_some(path: Path) -> None:
    store = TokenStore(path, SystemClock())
    for _ in range(20):
        store.create("alice", DAY_S)


def test_tokens_made_at_the_same_time_are_all_kept(path: Path) -> None:
    spawn = multiprocessing.get_context("fork")
    makers = [spawn.Process(target=_make_some, args=(path,)) for _ in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
    assert [maker.exitcode for maker in makers] == [0] * 4
    assert len(TokenStore(path, StoppedClock()).list()) == 80
