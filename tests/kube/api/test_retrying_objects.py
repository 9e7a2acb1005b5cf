"""Which requests are sent again, and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client

from redbox_kube.api import kinds, retrying_objects
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.api.retrying_objects import RETRIES, RetryingObjects
from redbox_shared.backoff import Backoff

POD = ResourcePath(kinds.POD, "one", "farm")
LIST: Object = {"metadata": {"resourceVersion": "7"}, "items": []}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying_objects, "BACKOFF", Backoff(0.0, 0.0))


class Answers:
    """An API server with scripted answers: a status, or 0 for a connection that breaks off."""

    def __init__(self, *statuses: int) -> None:
        self.statuses: Iterator[int] = iter(statuses)
        self.asked = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        status = next(self.statuses, 200)
        if not status and request.transport is not None:
            request.transport.abort()
        body = LIST if status == 200 else {"kind": "Status", "message": "not now"}
        return web.json_response(body, status=status or 200)


@asynccontextmanager
async def asking(answers: Answers) -> AsyncIterator[RetryingObjects]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answers.answer)
    async with TestServer(app) as server:
        host = str(server.make_url("/"))
        objects = RetryingObjects(client.ApiClient(client.Configuration(host=host)), "test")
        try:
            yield objects
        finally:
            await objects.close()


async def test_what_is_transient_is_asked_again() -> None:
    answers = Answers(429, 500, 503, 0)
    async with asking(answers) as objects:
        assert await objects.get(POD) == LIST
    assert answers.asked == 5


async def test_a_page_of_a_list_is_asked_for_again() -> None:
    answers = Answers(429)
    async with asking(answers) as objects:
        assert [item async for item in objects.list_all(POD.all())] == []
    assert answers.asked == 2


@pytest.mark.parametrize("status", [400, 403, 422])
async def test_a_no_is_taken_for_a_no(status: int) -> None:
    answers = Answers(status)
    async with asking(answers) as objects:
        with pytest.raises(ApiRefused):
            await objects.get(POD)
    assert answers.asked == 1


async def test_what_does_not_pass_ends() -> None:
    answers = Answers(*[500] * 100)
    async with asking(answers) as objects:
        with pytest.raises(ApiRefused, match="not now"):
            await objects.delete(POD)
    assert answers.asked == RETRIES + 1


async def test_an_api_server_that_stays_away_is_not_waited_for_by_every_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retrying_objects, "WAITS_S", 0.0)
    answers = Answers(*[503] * 100)
    async with asking(answers) as objects:
        with pytest.raises(ApiRefused):
            await objects.get(POD)
    assert answers.asked == 1
