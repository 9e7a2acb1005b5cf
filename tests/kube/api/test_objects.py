"""How the API server is reached."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client

from redbox_api.limits.answer_limits import AnswerLimits
from redbox_clusters.virtual_pods import submitted_pods
from redbox_kube.api import kinds
from redbox_kube.api import objects as objects_module
from redbox_kube.api.connection import proxy_in_environment
from redbox_kube.api.informer import Informer
from redbox_kube.api.objects import (
    ApiRefused,
    ApiUnreachable,
    ApiUnreadable,
    Object,
    ObjectClient,
    ResourcePath,
)

API = "https://10.96.0.1:443"
PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"HTTP_PROXY": PROXY}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.96.0.1"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": ".example"}, PROXY),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, None),
    ],
)
def test_a_proxy_is_used_as_the_environment_has_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], proxy: str | None
) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_in_environment(API) == proxy


@asynccontextmanager
async def answering(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[ObjectClient]:
    """Something that stands where the API server should."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        objects = ObjectClient(client.ApiClient(client.Configuration(host=str(server.make_url("/")))), "test")
        try:
            yield objects
        finally:
            await objects.close()


def test_an_answer_of_something_else_is_no_answer_of_the_api_server() -> None:
    async def error_page(request: web.Request) -> web.Response:
        del request
        return web.Response(text="<html>a proxy in between</html>", content_type="text/html")

    async def asked() -> None:
        async with answering(error_page) as objects:
            with pytest.raises(ApiUnreachable, match="a proxy in between"):
                await objects.get(ResourcePath(kinds.POD, "one", "farm"))
            with pytest.raises(ApiUnreachable, match="a proxy in between"):
                [found async for found in objects.list_metadata(ResourcePath(kinds.POD, "", "farm"))]

    asyncio.run(asked())


def test_a_list_of_metadata_goes_on_to_its_last_page() -> None:
    def item(number: int, **more: Any) -> Any:
        named = {"name": f"job-{number}", "namespace": "farm", "uid": f"u{number}", "resourceVersion": "7"}
        return {"metadata": {**named, **more}}

    pages = {
        "": ({"continue": "two"}, [item(1, managedFields=[{"manager": "kubectl"}]), item(2)]),
        "two": ({"continue": "three", "remainingItemCount": 0}, None),
        "three": ({}, [item(3)]),
    }

    async def page(request: web.Request) -> web.Response:
        assert "PartialObjectMetadataList" in request.headers["Accept"]
        metadata, items = pages[request.query.get("continue", "")]
        return web.Response(text=json.dumps({"metadata": metadata, "items": items}))

    async def listed() -> list[str]:
        async with answering(page) as objects:
            return [
                f"{found.name} {found.uid}"
                async for found in objects.list_metadata(ResourcePath(kinds.POD, "", "farm"))
            ]

    assert asyncio.run(listed()) == ["job-1 u1", "job-2 u2", "job-3 u3"]


@pytest.mark.parametrize("reader", ["list_all", "informer", "submitted_pods"])
async def test_a_page_is_not_kept_while_the_next_one_is_read(reader: str) -> None:
    """As objects it may be twenty times as large, and many read lists at once."""
    kept: list[int] = []

    async def page(request: web.Request) -> web.Response:
        gc.collect()
        kept.append(sum(isinstance(one, dict) and one.get("mark") == ["first"] for one in gc.get_objects()))
        is_first = "continue" not in request.query
        metadata = {"resourceVersion": "7", "continue": "more" if is_first else ""}
        if request.query.get("watch"):
            return web.json_response({"message": "no watch"}, status=410)
        pods = [
            {
                "metadata": {"name": f"p{number}", "namespace": "farm"},
                "mark": ["first" if is_first else "last"],
            }
            for number in range(5)
        ]
        return web.json_response({"metadata": metadata, "items": pods})

    async with answering(page) as objects:
        pods = ResourcePath(kinds.POD)
        if reader == "list_all":
            assert [found["metadata"]["name"] async for found in objects.list_all(pods)] == [
                f"p{number}" for number in (*range(5), *range(5))
            ]
        elif reader == "submitted_pods":
            assert await submitted_pods(objects, ["hpc.main"]) == []
        else:
            informer = Informer(objects, pods, reduced=lambda _: True, on_change=lambda _: None)
            following = asyncio.create_task(informer.run())
            await asyncio.wait_for(informer.listed.wait(), 60)
            following.cancel()
    assert kept[0] == 0
    assert kept[1] <= 1  # the reader's own variable


def test_a_page_of_large_objects_is_read_by_fewer_and_each_of_them_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects_module, "MOST_BYTES", 20_000)
    sent: list[int] = []

    async def page(request: web.Request) -> web.Response:
        first, count = int(request.query.get("continue", "0")), int(request.query["limit"])
        names = [f"pod-{number}" for number in range(first, min(100, first + count))]
        items = [{"metadata": {"name": name}, "spec": "x" * 1000} for name in names]
        rest = {"continue": str(first + count)} if first + count < 100 else {}
        text = json.dumps({"metadata": {"resourceVersion": "8", **rest}, "items": items})
        sent.append(len(text))
        return web.Response(text=text)

    async def listed() -> list[str]:
        async with answering(page) as objects:
            return [_name(found) async for found in objects.list_all(ResourcePath(kinds.POD, "", "farm"))]

    assert asyncio.run(listed()) == [f"pod-{number}" for number in range(100)]
    assert max(sent[2:]) < 20_000


@pytest.mark.parametrize("levels", [195, 5_000])
def test_an_object_that_is_nested_without_end_hides_no_other(levels: int) -> None:
    """Any author of an object can have its managedFields, or a field without a schema, nest like that."""
    deep = '{"f:a":' * levels + "{}" + "}" * levels
    named = '"namespace": "farm", "uid": "u", "resourceVersion": "7"'
    fields = f'"managedFields": [{{"fieldsV1": {deep}}}]'
    bad = f'{{"metadata": {{"name": "bad", {named}, {fields}}}, "spec": {deep}}}'
    good = f'{{"metadata": {{"name": "good", {named}}}}}'
    page = f'{{"metadata": {{"resourceVersion": "8"}}, "items": [{bad}, {good}]}}'
    events = "".join(f'{{"type": "ADDED", "object": {found}}}\n' for found in (bad, good))

    async def answer(request: web.Request) -> web.Response:
        if "watch" in request.query:
            return web.Response(text=events)
        return web.Response(text=bad if request.path.endswith("bad") else page)

    async def asked() -> None:
        pods = ResourcePath(kinds.POD, "", "farm")
        async with answering(answer) as objects:
            assert [found.name async for found in objects.list_metadata(pods)] == ["bad", "good"]
            assert [_name(found) async for found in objects.list_all(pods)] == ["bad", "good"]
            assert [_name(found["object"]) async for found in objects.watch(pods, "8")] == ["bad", "good"]
            found = await objects.get(ResourcePath(kinds.POD, "bad", "farm"))
            assert found is not None
            assert _name(found) == "bad"

    asyncio.run(asked())


def _name(found: Any) -> str:
    return str(found["metadata"]["name"])


@asynccontextmanager
async def sending(answer: bytes) -> AsyncIterator[tuple[ObjectClient, list[str]]]:
    """Something that sends these bytes, ends the connection, and notes what it was asked."""
    asked: list[str] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split(" HTTP/")[0])
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        objects = ObjectClient(client.ApiClient(client.Configuration(host=host)), "test")
        try:
            yield objects, asked
        finally:
            await objects.close()


def whole(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body) if length is None else length}\r\n\r\n"
    return head.encode() + body


ELSEWHERE = [
    "../../../../../../api/v1/pods",
    "../../secrets/key",
    "cow/status",
    "..",
    ".",
    "..%2fsecrets%2fkey",
]


@pytest.mark.parametrize("name", ELSEWHERE)
async def test_a_name_that_a_tenant_wrote_leads_nowhere_else(name: str) -> None:
    async with sending(whole(b'{"kind": "Secret"}')) as (objects, asked):
        assert await objects.get(ResourcePath(kinds.CONFIG_MAP, name, "farm")) is None
        with pytest.raises(ApiRefused):
            await objects.apply(ResourcePath(kinds.POD, name, "farm"), {})
        with pytest.raises(ApiRefused):
            await objects.token_for("farm", name, "redbox.dev/x", seconds=600)
    assert asked == []


@pytest.mark.parametrize(
    ("name", "path"),
    [("system:node.a", "system%3Anode.a"), ("a?b#c", "a%3Fb%23c"), ("ä +", "%C3%A4%20%2B")],
)
async def test_a_name_arrives_as_it_is(name: str, path: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        paths.append(request.rel_url.raw_path.replace(":", "%3A").replace("+", "%2B"))
        return web.json_response({"name": request.match_info["path"].rpartition("/")[2]})

    paths: list[str] = []
    async with answering(answer) as objects:
        assert await objects.get(ResourcePath(kinds.CONFIG_MAP, name, "farm")) == {"name": name}
    assert [found.rpartition("/api/v1")[2] for found in paths] == [f"/namespaces/farm/configmaps/{path}"]


async def followed(objects: ObjectClient) -> list[Object]:
    return [found async for found in objects.watch(ResourcePath(kinds.POD), "1")]


@pytest.mark.parametrize("status", ["200 OK", "403 Forbidden"])
async def test_an_answer_that_breaks_off_in_its_body_is_no_answer(status: str) -> None:
    async with sending(whole(b'{"kind": "Lea', status, length=1000)) as (objects, _):
        with pytest.raises(ApiUnreachable, match="does not answer"):
            await objects.get(ResourcePath(kinds.LEASE, "one", "farm"))
        with pytest.raises(ApiUnreachable, match="does not answer"):
            [found async for found in objects.pages(ResourcePath(kinds.POD))]
        with pytest.raises(ApiUnreachable, match="does not answer") as broken:
            await followed(objects)
        assert not isinstance(broken.value, ApiUnreadable)


ADDED = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"},"env":"%s"}}\n'


async def test_an_event_may_be_as_long_as_an_object_makes_it() -> None:
    async with sending(whole(ADDED % (b"\\u003c" * 1_000_000) + b"\n" + ADDED % b"x")) as (objects, _):
        assert [len(event["object"]["env"]) for event in await followed(objects)] == [1_000_000, 1]


async def test_an_event_that_has_no_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_module, "OF_EVENTS", AnswerLimits(longest=100_000))
    async with sending(whole(b"x" * 1_000_000)) as (objects, _):
        with pytest.raises(ApiUnreadable):
            await followed(objects)


@pytest.mark.parametrize(
    "line",
    [
        b"<html>a proxy in between</html>",
        b"[]",
        b"{}",
        b'{"type":"ADDED","object":[]}',
        b'{"type":"ADDED","object":{"metadata":{}}}',
        b'{"type":"ADDED","object":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\xff",
    ],
    ids=["html", "list", "empty", "no object", "no version", "deep", "no text"],
)
async def test_an_event_that_is_none_is_said_to_be_unreadable(line: bytes) -> None:
    async with sending(whole(ADDED % b"x" + line + b"\n")) as (objects, _):
        events = objects.watch(ResourcePath(kinds.POD), "1")
        assert (await anext(events))["type"] == "ADDED"
        with pytest.raises(ApiUnreadable):
            await anext(events)


async def test_only_statuses_become_printable() -> None:
    """A script of a ConfigMap arrives as it is."""
    script = "#!/bin/sh\r\nprintf '\x1b[1m'\n"
    bodies: list[Object] = []

    async def takes(request: web.Request) -> web.Response:
        bodies.append(json.loads(await request.text()))
        return web.json_response(bodies[-1])

    async with answering(takes) as objects:
        await objects.apply(ResourcePath(kinds.CONFIG_MAP, "a", "farm"), {"data": {"run": script}})
        await objects.apply_status(ResourcePath(kinds.POD, "a", "farm"), {"message": "\x1b[2J"})
    assert bodies[0]["data"] == {"run": script}
    assert bodies[1]["status"] == {"message": "?[2J"}


@pytest.mark.parametrize(
    ("status", "answer"),
    [(200, HTTPStatus.OK), (404, HTTPStatus.NOT_FOUND), (409, HTTPStatus.CONFLICT)],
)
async def test_a_deletion_tells_an_object_that_is_gone_from_another_version(
    status: int, answer: HTTPStatus
) -> None:
    bodies: list[Object] = []

    async def answers(request: web.Request) -> web.Response:
        bodies.append(json.loads(await request.text()))
        return web.json_response({"metadata": {}, "message": "no"}, status=status)

    async with answering(answers) as objects:
        where = ResourcePath(kinds.POD, "a", "farm")
        assert await objects.delete(where, uid="u", version="7") == answer
        await objects.delete(where)
    assert bodies == [{"preconditions": {"uid": "u", "resourceVersion": "7"}}, {}]


@pytest.mark.parametrize("body", [b"{}", b'{"items":[]}', b'{"items":7,"metadata":{"resourceVersion":"1"}}'])
async def test_an_answer_that_lacks_what_it_is_asked_for_is_no_answer(body: bytes) -> None:
    async with sending(whole(body)) as (objects, _):
        with pytest.raises(ApiUnreadable):
            [found async for found in objects.pages(ResourcePath(kinds.POD))]
        with pytest.raises(ApiUnreadable, match="gitVersion"):
            await objects.server_version()
        with pytest.raises(ApiUnreadable, match=r"status\.token"):
            await objects.token_for("farm", "default", "redbox.dev/x", seconds=600)


async def test_a_list_of_nothing_may_have_no_items() -> None:
    async with sending(whole(b'{"items":null,"metadata":{"resourceVersion":"7"}}')) as (objects, _):
        assert [found async for found in objects.pages(ResourcePath(kinds.POD))] == [([], "7")]


async def test_a_watch_of_a_kind_without_changes_ends_without_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The API server sends no bookmarks of a kind that has not changed since it started."""
    monkeypatch.setattr(objects_module, "WATCH_SILENT_S", 0.05)
    left = asyncio.Event()

    async def silent(request: web.Request) -> web.Response:
        stream = web.StreamResponse()
        await stream.prepare(request)
        await left.wait()
        return stream  # type: ignore[return-value]

    async with answering(silent) as objects:
        assert [event async for event in objects.watch(ResourcePath(kinds.POD), "8")] == []
        left.set()
