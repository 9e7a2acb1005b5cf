"""The example of docs/developers/controllers.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from prometheus_client import CollectorRegistry, Counter

from redbox_kube.api.kinds import CONFIG_MAP
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.controller.controller import run_controllers
from redbox_kube.controller.kube_object import read_object
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_kube.schemas.crd import crd_of
from redbox_kube.status.status_writer import StatusWriter
from tests.kube.controller.greetings import GREETINGS, Greeting, Greetings, config_map_of
from tests.kube.fakes import FakeApiServer

HELLO = ResourcePath(GREETINGS, "hello", "farm")
OWNED = ResourcePath(CONFIG_MAP, "hello-text", "farm")


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    api = FakeApiServer()
    writes = Counter("writes", "Writes.", ("kind", "verb"), registry=None)
    greetings = Greetings(StatusWriter(api.client, writes), ControllerMetrics(CollectorRegistry()))
    task = asyncio.create_task(run_controllers([greetings.controller]))
    yield api
    task.cancel()


async def eventually(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not check():  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.001)


def condition(api: FakeApiServer) -> Object:
    (found,) = api.objects[HELLO].get("status", {}).get("conditions") or ({"reason": "None yet"},)
    return dict(found)


async def test_it_has_a_config_map_with_its_text(api: FakeApiServer) -> None:
    api.put(HELLO, spec={"text": "good day"})
    await eventually(lambda: api.objects[HELLO].get("status", {}).get("configMap") == "hello-text")
    assert api.objects[OWNED]["data"] == {"text": "good day"}
    assert condition(api)["reason"] == "Done"


async def test_a_change_by_hand_is_undone(api: FakeApiServer) -> None:
    api.put(HELLO, spec={"text": "good day"})
    await eventually(lambda: OWNED in api.objects)
    api.put(OWNED, {**api.objects[OWNED], "data": {"text": "go away"}})
    await eventually(lambda: api.objects[OWNED]["data"] == {"text": "good day"})


async def test_a_refusal_is_a_condition_and_an_event(api: FakeApiServer) -> None:
    api.fail(ApiRefused(403, "exceeded quota"), verb="apply", times=1)
    api.put(HELLO, spec={"text": "good day"})
    await eventually(lambda: bool(api.events))
    assert (condition(api)["status"], condition(api)["message"]) == ("False", "exceeded quota")
    assert [(event["reason"], event["message"]) for event in api.events] == [
        ("ConfigMapFailed", "exceeded quota")
    ]


def test_its_config_map() -> None:
    raw = {"metadata": {"name": "hello", "namespace": "farm", "uid": "u"}, "spec": {"text": "good day"}}
    assert config_map_of(read_object(Greeting, raw)).body == {"data": {"text": "good day"}}


def test_its_crd() -> None:
    crd = crd_of(GREETINGS, "A greeting.")
    assert crd["metadata"]["name"] == "greetings.example.dev"
    (version,) = crd["spec"]["versions"]
    assert version["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] == ["text"]
