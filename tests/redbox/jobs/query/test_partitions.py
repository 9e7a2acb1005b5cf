"""Partitions: what each caller may see of them, and what changes in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from redbox.core.domain import Caller, Limits
from redbox.jobs.errors import Gone, JobsBusy
from redbox.jobs.query import partitions
from redbox_api.models import Amounts, Partition, PartitionEvent
from tests.redbox.jobs.harness import World, caller

EMPTY = Amounts(nodes=0, cpus=0, mem_mb=0)
DEBUG_ONLY = caller(limits=Limits(partitions=frozenset({"debug"})))


def partition(name: str, state: str = "UP") -> Partition:
    return Partition(name=name, state=state, total=EMPTY, free=EMPTY)


class Reader:
    """Somebody who reads a watch as it comes."""

    def __init__(self, world: World, who: Caller | None = None, since: str | None = None) -> None:
        self.events: list[PartitionEvent] = []
        events = world.run(world.jobs.watch_partitions(who or caller(), since))
        self.task = world.begin(self._read(events))
        world.settle()

    async def _read(self, events: AsyncIterator[PartitionEvent]) -> None:
        async for event in events:
            self.events.append(event)

    def told(self) -> list[tuple[str, str, str]]:
        return [
            (event.type, event.partition.name, event.partition.state)
            for event in self.events
            if event.partition
        ]


def show(world: World, shown: Iterable[Partition]) -> None:
    world.slurm.partitions_now = list(shown)


def test_a_watch_tells_what_there_is_then_what_changes_comes_and_goes(world: World) -> None:
    show(world, [partition("debug"), partition("GPU_big")])
    reader = Reader(world)
    assert reader.told() == [("partition", "debug", "UP"), ("partition", "GPU_big", "UP")]
    show(world, [partition("debug", "DRAIN"), partition("new")])
    world.advance(11)
    assert reader.told()[2:] == [
        ("gone", "GPU_big", "UP"),
        ("partition", "debug", "DRAIN"),
        ("partition", "new", "UP"),
    ]
    numbers = [int(event.revision.split(".")[1]) for event in reader.events]
    assert numbers == sorted(numbers)


def test_a_watch_from_a_list_misses_nothing_and_repeats_nothing(world: World) -> None:
    show(world, [partition("debug"), partition("long")])
    listed = world.run(world.jobs.partitions(caller()))
    show(world, [partition("debug", "DOWN")])
    world.advance(11)
    reader = Reader(world, since=listed.revision)
    assert reader.told() == [("gone", "long", "UP"), ("partition", "debug", "DOWN")]


def test_a_watch_shows_only_what_the_callers_rule_allows(world: World) -> None:
    show(world, [partition("debug"), partition("secret")])
    reader = Reader(world, DEBUG_ONLY)
    show(world, [partition("debug", "DRAIN"), partition("secret", "DRAIN")])
    world.advance(11)
    assert reader.told() == [("partition", "debug", "UP"), ("partition", "debug", "DRAIN")]


def test_bookmarks_come_while_slurm_is_away_and_say_since_when(world: World) -> None:
    show(world, [partition("debug")])
    reader = Reader(world)
    asked_at = world.clock.now()
    world.slurm.down = True
    world.advance(31)
    bookmarks = [event for event in reader.events if event.type == "bookmark"]
    assert len(bookmarks) >= 3
    assert bookmarks[-1].stale_since == asked_at
    assert reader.told() == [("partition", "debug", "UP")]  # what is not seen has not gone
    world.slurm.down = False
    world.advance(21)
    assert reader.events[-1].stale_since is None


def test_bookmarks_come_while_a_question_to_slurm_hangs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(world, [partition("debug")])
    reader = Reader(world)

    async def hang() -> tuple[Partition, ...]:
        await asyncio.Event().wait()
        return ()

    monkeypatch.setattr(world.slurm, "partitions", hang)
    world.advance(60)
    assert len([event for event in reader.events if event.type == "bookmark"]) >= 5


def test_a_watch_is_busy_where_slurm_has_never_answered(world: World) -> None:
    world.slurm.down = True
    with pytest.raises(JobsBusy, match="Slurm does not answer"):
        world.run(world.jobs.watch_partitions(caller()))


@pytest.mark.parametrize(
    "since", ["", "nonsense", "0123456789ab.1", ".", "²", "{epoch}.²", "{epoch}.-1", "{epoch}." + "9" * 5000]
)
def test_a_revision_that_means_nothing_is_gone(world: World, since: str) -> None:
    epoch = world.run(world.jobs.partitions(caller())).revision.partition(".")[0]
    with pytest.raises(Gone, match="list the partitions"):
        world.run(world.jobs.watch_partitions(caller(), since.format(epoch=epoch)))


def test_a_revision_is_gone_once_the_server_has_started_anew(world: World) -> None:
    show(world, [partition("debug")])
    listed = world.run(world.jobs.partitions(caller()))
    world.restart()
    with pytest.raises(Gone, match="list the partitions"):
        world.run(world.jobs.watch_partitions(caller(), listed.revision))


def test_a_revision_from_before_forgotten_removals_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "REMOVALS_REMEMBERED", 2)
    world.restart()
    show(world, [partition(name) for name in "abc"])
    listed = world.run(world.jobs.partitions(caller()))
    show(world, [])
    world.advance(11)
    world.run(world.jobs.partitions(caller()))
    with pytest.raises(Gone, match="list the partitions"):
        world.run(world.jobs.watch_partitions(caller(), listed.revision))


def test_slurm_is_asked_for_all_watchers_at_once_and_not_at_all_for_none(world: World) -> None:
    asked = 0

    async def count() -> tuple[Partition, ...]:
        nonlocal asked
        asked += 1
        return ()

    world.slurm.partitions = count  # type: ignore[method-assign]
    readers = [Reader(world) for _ in range(20)]
    world.advance(60)
    assert asked <= 8
    for reader in readers:
        reader.task.cancel()
    world.advance(11)
    before = asked
    world.advance(600)
    assert asked == before


def test_a_hanging_slurm_is_asked_once_for_a_crowd(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    async def hang() -> tuple[Partition, ...]:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()
        return ()

    monkeypatch.setattr(world.slurm, "partitions", hang)
    crowd = [world.begin(world.jobs.partitions(caller())) for _ in range(50)]
    world.advance(61)
    assert asked == 1
    assert all(isinstance(one.exception(), JobsBusy) for one in crowd)
