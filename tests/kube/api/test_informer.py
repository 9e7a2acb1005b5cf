"""A mirror of objects under the faults of a watch, by a scripted API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest

from redbox_kube.api import informer as module
from redbox_kube.api import kinds
from redbox_kube.api.informer import Informer, Place
from redbox_kube.api.objects import ApiRefused, ApiUnreachable, ApiUnreadable, Object, ResourcePath
from redbox_shared.backoff import Backoff
from tests.kube.fakes import FakeApiServer

PATIENCE_S = 60.0


def thing(name: str, version: int, **more: Any) -> Object:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, **more}


def event(kind: str, shown: Object) -> Object:
    return {"type": kind, "object": shown}


FORGOTTEN = event("ERROR", {"code": 410, "message": "too old"})


class Script(FakeApiServer):
    """Lists and watches, in the order in which they are to be asked for; then the watch stays silent."""

    def __init__(self, *steps: list[Object] | list[Exception]) -> None:
        super().__init__()
        self.steps = list(steps)
        self.sequence: list[str] = []

    async def pages(
        self, where: ResourcePath, selection: Mapping[str, str] | None = None, *, metadata: bool = False
    ) -> AsyncIterator[tuple[list[Object], str]]:
        del where, selection, metadata
        self.sequence.append("list")
        yield cast("list[Object]", self.steps.pop(0)), "10"

    async def watch(
        self,
        where: ResourcePath,
        since: str,
        selection: Mapping[str, str] | None = None,
        *,
        metadata: bool = False,
    ) -> AsyncIterator[Object]:
        del where, selection, metadata
        self.sequence.append(since)
        if not self.steps:
            await asyncio.sleep(3600)
        for item in self.steps.pop(0):
            if isinstance(item, Exception):
                raise item
            yield item


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF", Backoff(0.0, 0.0))
    monkeypatch.setattr(module, "SHORTEST_WATCH_S", 0.0)


async def played(script: Script, **options: Any) -> tuple[Informer, list[set[Place]]]:
    """The mirror once the script is over, and the changes that it reported."""
    noted: list[set[Place]] = []
    given = {"reduced": lambda shown: shown, **options}
    mirror: Informer = Informer(script.client, ResourcePath(kinds.NODE), on_change=noted.append, **given)
    running = asyncio.create_task(mirror.run())
    async with asyncio.timeout(PATIENCE_S):
        while script.steps or script.sequence[-1] == "list":  # noqa: ASYNC110 (the mirror tells nothing at its end)
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    return mirror, noted


async def test_a_watch_goes_on_from_the_list_and_from_where_it_ended() -> None:
    script = Script(
        [thing("a", 1)], [event("ADDED", thing("b", 11)), event("DELETED", thing("a", 12))], [], []
    )
    mirror, noted = await played(script)
    assert {name for _, name in mirror.items} == {"b"}
    assert script.sequence[:3] == ["list", "10", "12"]
    assert noted == [{("", "a")}, {("", "b")}, {("", "a")}]


async def test_after_a_place_that_is_forgotten_it_lists_and_tells_what_is_gone() -> None:
    mirror, noted = await played(Script([thing("a", 1), thing("b", 2)], [FORGOTTEN], [thing("b", 2)], []))
    assert {name for _, name in mirror.items} == {"b"}
    assert noted[-1] == {("", "a"), ("", "b")}


@pytest.mark.parametrize(
    ("fault", "asked"),
    [
        (ApiUnreachable("cut"), ["list", "10", "11"]),
        (ApiRefused(403, "no longer yours"), ["list", "10", "list"]),
        (ApiUnreadable("no event"), ["list", "10", "list"]),
    ],
)
async def test_a_cut_watch_goes_on_and_a_refused_one_begins_anew(fault: Exception, asked: list[str]) -> None:
    steps: list[Any] = [[thing("a", 1)], [event("MODIFIED", thing("a", 11)), fault], [], []]
    script = Script(*steps)
    mirror, _ = await played(script)
    assert script.sequence[:3] == asked
    if "list" not in asked[2:]:
        assert ("", "a") in mirror.items


async def test_a_bookmark_moves_its_place_and_tells_nothing() -> None:
    script = Script([], [event("BOOKMARK", thing("", 50))], [], [])
    _, noted = await played(script)
    assert script.sequence[:3] == ["list", "10", "50"]
    assert noted == [set()]


async def test_what_is_not_wanted_is_not_kept_and_not_told() -> None:
    script = Script([thing("a", 1)], [event("ADDED", thing("b", 11)), event("MODIFIED", thing("a", 12))], [])
    mirror, noted = await played(script, reduced=lambda _: None)
    assert mirror.items == {}
    assert noted == [set()]


async def test_what_is_no_longer_wanted_is_told_once() -> None:
    changed = event("MODIFIED", thing("a", 12, left=True))
    mirror, noted = await played(
        Script([thing("a", 1)], [changed, changed], []),
        reduced=lambda shown: None if "left" in shown else shown,
    )
    assert mirror.items == {}
    assert noted == [{("", "a")}, {("", "a")}]


def reads_all_but_the_odd(shown: Object) -> Object:
    if "odd" in shown:
        raise ValueError("Exceeds the limit (4300 digits) for integer string conversion")
    return shown


async def test_an_object_that_cannot_be_read_is_left_out_and_keeps_no_other_from_being_read() -> None:
    listed = [thing("a", 1), thing("b", 2, odd=True), thing("c", 3)]
    shown = [
        event("ADDED", thing("d", 11, odd=True)),
        event("MODIFIED", thing("a", 12, odd=True)),
        event("ADDED", thing("e", 13)),
        event("MODIFIED", thing("b", 14)),
    ]
    mirror, noted = await played(Script(listed, shown, []), reduced=reads_all_but_the_odd)
    assert {name for _, name in mirror.items} == {"b", "c", "e"}
    assert noted[1:] == [{("", "a")}, {("", "e")}, {("", "b")}]


async def test_what_could_not_be_read_is_forgotten_once_it_is_gone() -> None:
    watched = [event("DELETED", thing("a", 11, odd=True)), FORGOTTEN]
    listed = [thing("a", 1, odd=True), thing("b", 2, odd=True), thing("c", 3, odd=True)]
    mirror, _ = await played(
        Script(listed, watched, [thing("c", 3, odd=True)], []), reduced=reads_all_but_the_odd
    )
    assert mirror._warnings.failing.keys() == {"/c"}


async def test_events_that_nobody_can_read_make_each_list_later_than_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses, at_once = [], asyncio.sleep

    async def sleep(seconds: float) -> None:
        if 0 < seconds <= 3000:
            pauses.append(seconds)
        await at_once(seconds if seconds > 3000 else 0)

    monkeypatch.setattr(module, "BACKOFF", Backoff(100.0, 3000.0))
    monkeypatch.setattr(module, "SHORTEST_WATCH_S", 100.0)
    monkeypatch.setattr(random, "uniform", lambda _, longest: longest)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    broken: list[Any] = [[thing("a", 1)], [event("MODIFIED", thing("a", 11)), ApiUnreadable("no event")]]
    await played(Script(*(broken * 7), [thing("a", 1)], []))
    assert pauses[:7] == [100.0, 200.0, 400.0, 800.0, 1600.0, 3000.0, 3000.0]


async def test_a_watch_that_ends_as_soon_as_it_began_is_not_begun_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BACKOFF", Backoff(1000.0, 1000.0))
    monkeypatch.setattr(module, "SHORTEST_WATCH_S", 1000.0)
    script = Script([thing("a", 1)], [])
    mirror: Informer = Informer(script.client, ResourcePath(kinds.NODE), on_change=lambda _: None)
    running = asyncio.create_task(mirror.run())
    for _ in range(50):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    assert script.sequence == ["list", "10"]


async def test_a_mirror_follows_an_api_server_over_a_compaction_of_its_history() -> None:
    api = FakeApiServer(page_size=1)
    nodes = [ResourcePath(kinds.NODE, name) for name in ("a", "b", "c")]
    for node in nodes[:2]:
        api.put(node)
    mirror: Informer = Informer(api.client, ResourcePath(kinds.NODE), on_change=lambda _: None)
    running = asyncio.create_task(mirror.run())
    try:
        await mirror_has(mirror, "a", "b")
        api.put(nodes[2])
        await mirror_has(mirror, "a", "b", "c")
        api.forget_history()
        api.remove(nodes[0])
        await mirror_has(mirror, "b", "c")
    finally:
        running.cancel()
        await asyncio.wait({running})


async def mirror_has(mirror: Informer, *names: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while {name for _, name in mirror.items} != set(names):  # noqa: ASYNC110 (sets no event)
            await asyncio.sleep(0)
