"""The door as a whole: headers and peers in, a Caller or a reason out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from redbox.callers.authenticator import Authenticator
from redbox.callers.errors import (
    AuthenticationUnavailable,
    NotMapped,
    TokenFault,
    Unauthenticated,
)
from redbox.callers.identities import Peer
from redbox.callers.peers import STATE_KEY
from redbox.callers.tokens.opaque_tokens import TokenStore
from redbox.callers.unix_accounts import AccountResolver, NssPolicy, UnixAccount
from redbox.core.domain import UnixUser
from redbox.settings import RedboxSettings, load_settings, rules_in_force
from tests.redbox.callers.factories import AUDIENCE, ISSUER, StoppedClock, claims, jwks, rsa_key, token
from tests.redbox.callers.fakes import Accounts, Request, https_server

RULES = [{"cluster": "prod", "namespaces": ["physics"], "user": "alice"}]
HOST = Accounts({"alice": UnixAccount("alice", 2001, frozenset({2001, 500}))})


def write_settings(directory: Path, clusters: list[dict[str, Any]]) -> Path:
    path = directory / "redbox.yaml"
    settings = {
        "name": "hpc1",
        "callers": {"tokens_file": str(directory / "tokens.json"), "clusters": clusters},
        "mapping": {"rules": RULES if clusters else []},
    }
    path.write_text(json.dumps(settings))  # which is YAML too
    return path


def prod(directory: Path, **more: Any) -> dict[str, Any]:
    keys = directory / "jwks.json"
    keys.write_bytes(jwks(a=rsa_key()))
    return {"name": "prod", "issuer": ISSUER, "audience": AUDIENCE, "jwks_file": str(keys), **more}


@asynccontextmanager
async def door(path: Path, clock: StoppedClock) -> AsyncIterator[Authenticator]:
    settings: RedboxSettings = load_settings(path)
    accounts = AccountResolver(HOST, NssPolicy(), clock)
    rules = rules_in_force(settings, path)
    async with Authenticator.from_settings(settings.callers, rules, clock, accounts) as authenticator:
        yield authenticator


def bearer(sent: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"login"), (b"authorization", b"Bearer " + sent.encode())]


async def test_a_service_account_is_its_unix_user(tmp_path: Path) -> None:
    async with door(write_settings(tmp_path, [prod(tmp_path)]), StoppedClock()) as authenticator:
        caller = await authenticator.authenticate_headers(bearer(token()), None)
    assert caller.user == UnixUser("alice", 2001)
    assert caller.owner.cluster == "prod"


async def test_an_identity_without_a_rule_is_refused_and_told_what_was_seen(tmp_path: Path) -> None:
    async with door(write_settings(tmp_path, [prod(tmp_path)]), StoppedClock()) as authenticator:
        with pytest.raises(NotMapped) as refusal:
            await authenticator.authenticate_headers(bearer(token(payload=claims(namespace="biology"))), None)
    assert str(refusal.value) == (
        "system:serviceaccount:biology:default of cluster prod may not use this red-box: "
        "no mapping rule matches it; the HPC administrator can add one to mapping.rules"
    )


async def test_what_happens_inside_the_door_comes_out_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        async with door(write_settings(tmp_path, [prod(tmp_path)]), StoppedClock()):
            raise KeyError("the body's own")


HEADERS: dict[str, tuple[list[tuple[bytes, bytes]], TokenFault]] = {
    "none": ([], TokenFault.MISSING),
    "basic": ([(b"authorization", b"Basic YWxpY2U6eA==")], TokenFault.MALFORMED),
    "no token": ([(b"authorization", b"Bearer ")], TokenFault.MALFORMED),
    "twice": (
        [(b"authorization", b"Bearer a"), (b"Authorization", b"Bearer b")],
        TokenFault.MALFORMED,
    ),
    "not ascii": ([(b"authorization", b"Bearer \xc3\xa4")], TokenFault.MALFORMED),
    "nonsense": ([(b"authorization", b"Bearer nonsense")], TokenFault.MALFORMED),
}


@pytest.mark.parametrize("case", HEADERS)
async def test_a_header_that_proves_nothing_is_refused(tmp_path: Path, case: str) -> None:
    headers, fault = HEADERS[case]
    async with door(write_settings(tmp_path, []), StoppedClock()) as authenticator:
        with pytest.raises(Unauthenticated) as refusal:
            await authenticator.authenticate_headers(headers, None)
    assert refusal.value.fault is fault


async def test_at_the_socket_everybody_is_who_they_are(tmp_path: Path) -> None:
    scope = {"type": "http", "headers": [], "state": {STATE_KEY: Peer(2001, 2001, 7)}}
    async with door(write_settings(tmp_path, []), StoppedClock()) as authenticator:
        caller = await authenticator.authenticate(HTTPConnection(scope))
    assert (caller.user, caller.identity) == (UnixUser("alice", 2001), "uid:2001")


async def test_a_bad_token_at_the_socket_is_not_overlooked(tmp_path: Path) -> None:
    async with door(write_settings(tmp_path, []), StoppedClock()) as authenticator:
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate_headers(bearer("nonsense"), Peer(2001, 2001, 7))


async def test_a_token_made_by_the_administrator_opens_the_door(tmp_path: Path) -> None:
    clock = StoppedClock()
    made = TokenStore(tmp_path / "tokens.json", clock).create("alice", 60)
    async with door(write_settings(tmp_path, []), clock) as authenticator:
        caller = await authenticator.authenticate_headers(bearer(made.secret), None)
    assert caller.identity == f"token:{made.record.id}"


async def test_new_rules_hold_after_a_reload_and_bad_ones_never(tmp_path: Path) -> None:
    path = write_settings(tmp_path, [prod(tmp_path)])
    async with door(path, StoppedClock()) as authenticator:
        good = path.read_text()
        path.write_text(good.replace('"physics"', '"PHYSICS"'))
        assert not authenticator.reload_rules()
        assert (await authenticator.authenticate_headers(bearer(token()), None)).user == UnixUser(
            "alice", 2001
        )
        assert "'PHYSICS' is not a valid name of a namespace" in authenticator.warnings()[0]
        path.write_text(good.replace('"physics"', '"biology"'))
        assert authenticator.reload_rules()
        with pytest.raises(NotMapped):
            await authenticator.authenticate_headers(bearer(token()), None)


async def test_a_token_review_has_the_last_word(tmp_path: Path) -> None:
    account = {
        "username": "system:serviceaccount:physics:default",
        "uid": claims()["kubernetes.io"]["serviceaccount"]["uid"],
    }
    token_status = {"status": {"authenticated": True, "audiences": [AUDIENCE], "user": account}}
    status = [201]

    def answer(request: Request) -> tuple[int, bytes]:
        assert request.headers["authorization"] == "Bearer reviewer"
        return status[0], json.dumps(token_status).encode()

    (tmp_path / "reviewer").write_text("reviewer")
    async with https_server(tmp_path, answer) as (server, ca_file):
        review = {
            "server": server.url,
            "ca_file": str(ca_file),
            "token_file": str(tmp_path / "reviewer"),
            "cache": 0,
        }
        path = write_settings(tmp_path, [prod(tmp_path, token_review=review)])
        async with door(path, StoppedClock()) as authenticator:
            assert (await authenticator.authenticate_headers(bearer(token()), None)).user == UnixUser(
                "alice", 2001
            )
            token_status["status"] = {"authenticated": False, "error": "the pod is gone"}
            with pytest.raises(Unauthenticated, match="the pod is gone"):
                await authenticator.authenticate_headers(bearer(token()), None)
            status[0] = 500
            with pytest.raises(AuthenticationUnavailable):
                await authenticator.authenticate_headers(bearer(token()), None)


async def test_tokens_that_are_forged_never_reach_the_api_server(tmp_path: Path) -> None:
    (tmp_path / "reviewer").write_text("reviewer")
    async with https_server(tmp_path, lambda _: (201, b"{}")) as (server, ca_file):
        review = {"server": server.url, "ca_file": str(ca_file), "token_file": str(tmp_path / "reviewer")}
        path = write_settings(tmp_path, [prod(tmp_path, token_review=review)])
        async with door(path, StoppedClock()) as authenticator:
            with pytest.raises(Unauthenticated):
                await authenticator.authenticate_headers(bearer(token(rsa_key(1))), None)
    assert server.requests == []
