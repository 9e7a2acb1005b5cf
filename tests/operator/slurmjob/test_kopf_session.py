"""What kopf reads: of objects that its parser does not follow, and of the operator's own writes."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import kopf
import pytest
from aiohttp import ClientConnectionError, ClientPayloadError, ClientResponse, web
from aiohttp.test_utils import TestServer
from structlog.testing import capture_logs

from redbox_operator.slurmjob.kopf_session import session_by
from redbox_operator.slurmjob.kopf_watches import settings_for

DEEP = '{"a":' * 5_000 + "1" + "}" * 5_000
GOOD = {"type": "ADDED", "object": {"metadata": {"name": "good"}, "text": "ü" * 2_000}}
LINES = [json.dumps(GOOD), '{"type": "ADDED", "object": {"metadata": {"name": "bad"}, "spec": ' + DEEP + "}}"]


def event(kind: str, version: str, **labels: str) -> str:
    """As the API server writes it."""
    metadata = {"labels": labels, "name": "cow", "resourceVersion": version}
    return json.dumps({"type": kind, "object": {"metadata": metadata}}, separators=(",", ":"))


reads: list[int] = []
newest: list[str | None] = []
OWN = "17"
OF_WRITES = [
    event("ADDED", OWN),
    event("MODIFIED", "18"),
    event("MODIFIED", OWN),
    event("DELETED", OWN),
    event("MODIFIED", "19", resourceVersion=OWN),
    event("BOOKMARK", OWN),
]


ERRORS = [
    '{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcdserver: request timed out"}}',
    '{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}',
]


async def answer(request: web.Request) -> web.Response:
    if "refusal" in request.query:
        status = int(request.query["refusal"])
        return web.json_response({"kind": "Status", "code": status, "message": "no"}, status=status)
    if "page" in request.query:
        return web.Response(text="<html>\nmaintenance</html>", content_type="text/html")
    if "errors" in request.query:
        return web.Response(body="\n".join([*ERRORS, ""]).encode())
    if "writes" in request.query:
        return web.Response(body="\n".join([*OF_WRITES, ""]).encode())
    if "watch" in request.query:
        return web.Response(body="\n".join([*LINES, *LINES, ""]).encode())
    items = ", ".join(LINES)
    return web.Response(text=f'{{"items": [{items}]}}', content_type="application/json")


@asynccontextmanager
async def asked(**query: str) -> AsyncIterator[ClientResponse]:
    app = web.Application()
    app.router.add_get("/", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        login = kopf.ConnectionInfo(server=url, token="t0ken", insecure=True)
        made = session_by(
            login, lambda version: version == OWN, lambda: reads.append(1), lambda used: used.token in newest
        )
        async with made.aiohttp_session as session, session.get(url, params=query) as response:
            yield response


async def test_a_list_is_read_to_its_end() -> None:
    async with asked() as response:
        listed = await response.json()
    assert [item["object"]["metadata"]["name"] for item in listed["items"]] == ["good", "bad"]
    assert listed["items"][0] == GOOD


@pytest.mark.parametrize("size", [7, 1024 * 1024])
async def test_a_watch_is_read_by_its_lines_in_whatever_pieces_they_come(size: int) -> None:
    async with asked(watch="true") as response:
        read = b"".join([piece async for piece in response.content.iter_chunked(size)])
    events = [json.loads(line) for line in read.splitlines()]
    assert [item["object"]["metadata"]["name"] for item in events] == ["good", "bad"] * 2
    assert events[0] == events[2] == GOOD


@pytest.mark.parametrize("size", [7, 1024 * 1024])
async def test_a_change_that_the_operator_has_made_itself_is_not_shown_again(size: int) -> None:
    """A deletion and a bookmark are; and what a user names after versions hides no change."""
    async with asked(writes="true") as response:
        read = b"".join([piece async for piece in response.content.iter_chunked(size)])
    assert read.decode().splitlines() == [OF_WRITES[1], *OF_WRITES[3:]]


async def test_each_piece_of_a_watch_counts_as_read() -> None:
    reads.clear()
    async with asked(watch="true") as response:
        pieces = [piece async for piece in response.content.iter_chunked(1024 * 1024)]
    assert pieces
    assert reads


async def test_after_any_error_of_a_watch_kopf_lists_again() -> None:
    async with asked(errors="true") as response:
        read = b"".join([piece async for piece in response.content.iter_chunked(1024)])
    assert [json.loads(line)["object"]["code"] for line in read.splitlines()] == [410, 410]


@pytest.mark.parametrize("status", ["400", "404", "410"])
async def test_kopf_lists_again_if_a_watch_or_a_later_page_is_refused(status: str) -> None:
    """Of any other exception, and of a status that is no success, its watches end."""
    with pytest.raises(ClientPayloadError):
        async with asked(refusal=status, limit="40", **({} if status == "410" else {"continue": "40"})):
            pass
    with capture_logs() as logged:
        async with asked(refusal=status, watch="true") as response:
            read = [piece async for piece in response.content.iter_chunked(1024)]
    assert response.ok
    assert [json.loads(piece)["object"]["code"] for piece in read] == [410]
    assert [line["status"] for line in logged] == ([] if status == "410" else [int(status)])


@pytest.mark.parametrize(("status", "words"), [("400", "status 400$"), ("404", "is its CRD installed")])
async def test_kopf_tries_a_refused_list_again_with_growing_pauses_and_logs_it(
    status: str, words: str
) -> None:
    """After a ClientPayloadError it lists again every two seconds, and logs nothing."""
    with pytest.raises(ClientConnectionError, match=words):
        async with asked(refusal=status, limit="40"):
            pass


async def test_kopf_itself_handles_what_it_tries_again_and_kinds_that_are_gone() -> None:
    for query in ({"refusal": "403", "limit": "40"}, {"refusal": "429", "watch": "true"}, {"refusal": "404"}):
        async with asked(**query) as response:
            assert str(response.status) == query["refusal"]


async def test_kopf_asks_again_where_a_proxy_answers_with_a_page() -> None:
    for query in ({"limit": "40"}, {"watch": "true"}, {}):
        with pytest.raises(ClientConnectionError):
            async with asked(page="true", **query):
                pass


async def test_kopf_asks_again_by_the_token_that_was_refused_while_there_is_no_newer_one() -> None:
    """It ends its watches if a new login is the one that was refused; a lost connection it tries again."""
    newest[:] = ["t0ken"]
    with pytest.raises(ClientConnectionError):
        async with asked(refusal="401", limit="40"):
            pass
    newest[:] = ["another"]
    async with asked(refusal="401", limit="40") as response:
        assert response.status == 401


def test_no_request_of_kopfs_is_given_up() -> None:
    backoffs = settings_for(["farm"]).networking.error_backoffs
    assert not isinstance(backoffs, int | float)
    for _ in range(2):  # each request begins with the shortest
        pauses = list(itertools.islice(backoffs, 1000))
        assert pauses[0] == 1
        assert pauses[-1] == max(pauses) == 30


async def test_it_says_who_asks() -> None:
    async with asked() as response:
        assert response.request_info.headers["Authorization"] == "Bearer t0ken"
