"""Key sets and TokenReviews over real TLS, and what their faults look like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from redbox.callers.errors import ApiServerUnavailable, AuthenticationUnavailable, TokenFault, Unauthenticated
from redbox.callers.identities import ServiceAccount
from redbox.callers.tokens.api_access import ApiAccess
from redbox.callers.tokens.key_sets import JwksFile, JwksUrl, KeySet, RefreshPolicy
from redbox.callers.tokens.kubernetes_api import ApiServerClient
from redbox.callers.tokens.token_review import TokenReviewer
from redbox.core.turns import Share, ShareKind, work_for, working_for
from tests.redbox.callers.factories import AUDIENCE, StoppedClock, ec_key, jwks, rsa_key
from tests.redbox.callers.fakes import DATE, Request, https_server

PHYSICS = ServiceAccount("prod", "physics", "default", "u-1")
FRESHNESS = RefreshPolicy(refresh_s=300, refetch_interval_s=10, max_stale_s=86_400)


def access(ca_file: Path | None, token_file: Path | None = None, deadline_s: float = 20) -> ApiAccess:
    return ApiAccess(ca_file, token_file, deadline_s)


async def test_keys_are_fetched_over_tls_and_rotate(tmp_path: Path) -> None:
    documents = [jwks(a=rsa_key()), jwks(b=ec_key())]
    clock = StoppedClock()
    async with https_server(tmp_path, lambda _: (200, documents[0])) as (server, ca_file):
        url = server.url + "/openid/v1/jwks"
        keys = KeySet("prod", JwksUrl(url, ApiServerClient(access(ca_file))), FRESHNESS, clock)
        assert await keys.key("a") is not None
        documents.pop(0)
        clock.pass_s(10)
        assert await keys.key("b") is not None
        assert await keys.key("a") is None
        await keys.close()
    assert [request.path for request in server.requests] == ["/openid/v1/jwks"] * 2


async def test_a_request_works_for_no_caller_who_happens_to_open_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[object] = []
    connected = ApiServerClient._connected

    async def noted(self: ApiServerClient) -> Any:
        owners.append(working_for.get())
        return await connected(self)

    monkeypatch.setattr(ApiServerClient, "_connected", noted)
    async with https_server(tmp_path, lambda _: (200, b"")) as (server, ca_file):
        api = ApiServerClient(access(ca_file))
        with work_for(Share(ShareKind.CALLER, "alice")):
            await api.get(server.url)
            await api.post(server.url, {})
            await api.date(server.url)
        await api.close()
    assert owners == [None, None, None]


async def test_keys_are_fetched_for_no_caller_in_particular(tmp_path: Path) -> None:
    owners: list[object] = []

    class Source(JwksFile):
        async def fetch(self) -> bytes | None:
            owners.append(working_for.get())
            return jwks(a=rsa_key())

    with work_for(Share(ShareKind.CALLER, "alice")):
        keys = KeySet("prod", Source(tmp_path), FRESHNESS, StoppedClock())
        assert await keys.key("a") is not None
    assert owners == [None]


async def test_a_server_with_another_ca_is_not_believed(tmp_path: Path) -> None:
    async with https_server(tmp_path, lambda _: (200, jwks(a=rsa_key()))) as (server, _):
        api = ApiServerClient(access(None))
        with pytest.raises(ApiServerUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await api.get(server.url)
        await api.close()
    assert server.requests == []


async def test_a_token_for_the_key_url_is_read_again_when_it_is_replaced(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    async with https_server(tmp_path, lambda _: (200, b"{}")) as (server, ca_file):
        api = ApiServerClient(access(ca_file, token_file))
        for token in ("first", "second"):
            token_file.write_text(token + "\n")
            await api.get(server.url)
        await api.close()
    assert [request.headers["authorization"] for request in server.requests] == [
        "Bearer first",
        "Bearer second",
    ]


def endless(_: Request) -> tuple[int, bytes]:
    return 200, b"x" * (2 * 1024 * 1024)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: (403, b"Forbidden: system:anonymous"), "answered 403: Forbidden: system:anonymous"),
        (lambda _: (302, b""), "answered 302"),
        (endless, "more than 1 MiB"),
    ],
    ids=["forbidden", "redirect", "endless"],
)
async def test_an_answer_that_is_none_says_what_it_was(tmp_path: Path, answer: Any, words: str) -> None:
    async with https_server(tmp_path, answer) as (server, ca_file):
        api = ApiServerClient(access(ca_file))
        with pytest.raises(ApiServerUnavailable, match=words):
            await api.get(server.url)
        await api.close()


async def test_what_time_it_is_there_is_told_also_to_those_who_are_not_let_in(tmp_path: Path) -> None:
    async with https_server(tmp_path, lambda _: (403, b"")) as (server, ca_file):
        api = ApiServerClient(access(ca_file))
        assert await api.date(server.url) == DATE
        await api.close()
    assert [request.method for request in server.requests] == ["HEAD"]


async def test_a_server_that_says_nothing_is_left_at_the_deadline(tmp_path: Path) -> None:
    async with https_server(tmp_path, lambda _: (200, b"{}")) as (server, ca_file):
        server.silent = True
        api = ApiServerClient(access(ca_file, deadline_s=0.2))
        with pytest.raises(ApiServerUnavailable, match=r"did not answer within 0\.2 s"):
            await api.get(server.url)
        await api.close()


async def test_a_server_that_is_not_there_and_a_token_that_is_not_there_are_no_answer(tmp_path: Path) -> None:
    with pytest.raises(ApiServerUnavailable, match=r"the request to .* failed"):
        await ApiServerClient(access(None)).get("https://127.0.0.1:1/")
    with pytest.raises(ApiServerUnavailable, match="No such file"):
        await ApiServerClient(access(None, tmp_path / "gone")).get("https://127.0.0.1:1/")


async def test_a_key_file_is_read_when_it_changes_and_only_then(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks(a=rsa_key()))
    source = JwksFile(path)
    assert await source.fetch() == jwks(a=rsa_key())
    assert await source.fetch() is None
    path.write_bytes(jwks(b=ec_key()))
    assert await source.fetch() == jwks(b=ec_key())
    path.unlink()
    with pytest.raises(ApiServerUnavailable, match="cannot be read: No such file"):
        await source.fetch()


async def test_a_bad_key_file_keeps_the_old_keys_until_it_is_mended(tmp_path: Path) -> None:
    path, clock = tmp_path / "jwks.json", StoppedClock()
    path.write_bytes(jwks(a=rsa_key()))
    keys = KeySet("prod", JwksFile(path), RefreshPolicy(1, 0, 86_400), clock)
    assert await keys.key("a") is not None
    for broken in (b"{", None):
        if broken is None:
            path.unlink()
        else:
            path.write_bytes(broken)
        for _ in range(2):  # also when it is looked at again and has not changed
            clock.pass_s(1)
            assert await keys.key("a") is not None
            assert keys.problem is not None
    path.write_bytes(jwks(b=ec_key()))
    clock.pass_s(1)
    assert await keys.key("b") is not None
    assert keys.problem is None


def reviewed(**status: Any) -> tuple[int, bytes]:
    good = {
        "authenticated": True,
        "audiences": [AUDIENCE],
        "user": {"username": "system:serviceaccount:physics:default", "uid": "u-1"},
    }
    return 201, json.dumps({"status": {**good, **status}}).encode()


def reviewer(url: str, ca_file: Path, clock: StoppedClock, deadline_s: float = 20) -> TokenReviewer:
    server = ApiServerClient(access(ca_file, deadline_s=deadline_s))
    return TokenReviewer(url, server, audience=AUDIENCE, cache_s=30, clock=clock)


async def test_the_api_server_is_asked_for_our_audience_and_believed_for_a_while(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with https_server(tmp_path, lambda _: reviewed()) as (server, ca_file):
        review = reviewer(server.url, ca_file, clock)
        await review.confirm("token", PHYSICS)
        clock.pass_s(29)
        await review.confirm("token", PHYSICS)
        assert len(server.requests) == 1
        clock.pass_s(1)
        await review.confirm("token", PHYSICS)
        await review.close()
    assert len(server.requests) == 2
    asked = json.loads(server.requests[0].body)
    assert server.requests[0].path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert (asked["kind"], asked["spec"]) == ("TokenReview", {"token": "token", "audiences": [AUDIENCE]})


DISOWNED: dict[str, tuple[dict[str, Any], str]] = {
    "revoked": ({"authenticated": False, "error": "pod is gone"}, "pod is gone"),
    "revoked without a word": ({"authenticated": False}, "no longer valid"),
    "authenticated as text": ({"authenticated": "yes"}, "no longer valid"),
    "for another audience": ({"audiences": ["vault"]}, "is not for redbox.dev"),
    "for no audience": ({"audiences": None}, "is not for redbox.dev"),
    "another account": (
        {"user": {"username": "system:serviceaccount:a:b", "uid": "u-1"}},
        "system:serviceaccount:a:b",
    ),
    "an account that was recreated": (
        {"user": {"username": "system:serviceaccount:physics:default", "uid": "u-2"}},
        "uid u-2",
    ),
}


@pytest.mark.parametrize("case", DISOWNED)
async def test_a_token_that_the_api_server_disowns_is_refused(tmp_path: Path, case: str) -> None:
    status, words = DISOWNED[case]
    async with https_server(tmp_path, lambda _: reviewed(**status)) as (server, ca_file):
        review = reviewer(server.url, ca_file, StoppedClock())
        with pytest.raises(Unauthenticated, match=words) as refusal:
            await review.confirm("token", PHYSICS)
        await review.close()
    assert refusal.value.fault is TokenFault.REVOKED


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: (500, b"etcd is away"),
        lambda _: (403, b"may not create tokenreviews"),
        lambda _: (201, b"<html>"),
        lambda _: (201, b"{}"),
        lambda _: (201, b"[]"),
        lambda _: (201, b'{"status": {"authenticated": true, "audiences": 3}}'),
    ],
    ids=["down", "forbidden", "html", "no status", "list", "nonsense"],
)
async def test_an_api_server_that_does_not_say_is_a_503_and_not_a_401(tmp_path: Path, answer: Any) -> None:
    async with https_server(tmp_path, answer) as (server, ca_file):
        review = reviewer(server.url, ca_file, StoppedClock())
        with pytest.raises(AuthenticationUnavailable, match="the TokenReview of cluster prod failed"):
            await review.confirm("token", PHYSICS)
        await review.close()
