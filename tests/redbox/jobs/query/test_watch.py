from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redbox.core.domain import Caller
from redbox.jobs.errors import Gone, NotAcceptable
from redbox.jobs.record.listing import Filters, PageRequest
from redbox.jobs.record.marks import Marks
from redbox.jobs.record.packed_records import RecordSummary
from redbox.jobs.service import JobService
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.ownership import may_see
from redbox_api.models import Phase, WatchEvent
from tests.redbox.jobs.clock import SimulatedClock
from tests.redbox.jobs.fakes import SimulatedSlurm
from tests.redbox.jobs.harness import BOB, SECRET, World, caller, operator, request


class Reader:
    """Somebody who reads a watch as it comes."""

    def __init__(self, world: World, events: AsyncIterator[WatchEvent]) -> None:
        self.events: list[WatchEvent] = []
        self.task = world.begin(self._read(events))

    async def _read(self, events: AsyncIterator[WatchEvent]) -> None:
        async for event in events:
            self.events.append(event)

    def jobs(self) -> list[tuple[str, str]]:
        return [
            (event.job.key, event.job.phase) for event in self.events if event.type == "job" and event.job
        ]


def put(world: World, key: str, who: object = None) -> None:
    world.run(world.jobs.put(who or caller(), key, 1, request()))  # type: ignore[arg-type]


def test_a_watch_from_a_list_misses_nothing_and_repeats_nothing(world: World) -> None:
    put(world, "before")
    world.advance(3)
    listed = world.run(world.jobs.list(caller()))
    reader = Reader(world, world.jobs.watch(caller(), listed.revision))
    world.settle()
    assert reader.events == []
    put(world, "after")
    world.slurm.start("1")
    world.advance(3)
    assert ("before", Phase.RUNNING) in reader.jobs()
    assert ("after", Phase.PENDING) in reader.jobs()
    numbers = [int(event.revision.split(".")[1]) for event in reader.events]
    assert numbers == sorted(numbers)


def test_a_watch_resumes_where_another_ended_even_over_a_restart(world: World) -> None:
    put(world, "one")
    revision = world.run(world.jobs.list(caller())).revision
    world.slurm.start("1")
    world.advance(3)
    world.restart()
    reader = Reader(world, world.jobs.watch(caller(), revision))
    world.settle()
    assert reader.jobs() == [("one", Phase.RUNNING)]


def test_bookmarks_come_every_ten_seconds_and_say_when_the_truth_is_stale(world: World) -> None:
    put(world, "one")
    reader = Reader(world, world.jobs.watch(caller(), world.run(world.jobs.list(caller())).revision))
    world.advance(61)
    marks = [event for event in reader.events if event.type == "bookmark"]
    assert 5 <= len(marks) <= 6
    assert marks[-1].message is None
    world.slurm.down = True
    world.advance(61)
    assert (reader.events[-1].message or "").startswith("stale since 2026-01-01")


@pytest.mark.parametrize(
    "since",
    [
        "other.1",
        "nonsense",
        "",
        "{epoch}.99",
        "{epoch}.x",
        "{epoch}.-1",
        "{epoch}.²",
        "{epoch}." + "9" * 5000,
    ],
)
def test_a_revision_that_means_nothing_here_is_gone(world: World, since: str) -> None:
    epoch = world.journal.epoch
    with pytest.raises(Gone):
        world.jobs.watch(caller(), since.format(epoch=epoch))


def test_a_deletion_that_is_not_remembered_makes_older_revisions_gone(world: World) -> None:
    put(world, "one")
    world.advance(3)
    old = world.run(world.jobs.list(caller())).revision
    world.slurm.end("1")
    world.advance(400)
    reader = Reader(world, world.jobs.watch(caller(), old))
    world.clock.advance_to(world.clock.elapsed + 31 * 86400.0)
    world.advance(700)
    gone = [event.job.key for event in reader.events if event.type == "gone" and event.job]
    assert gone == ["one"]
    world.restart()
    with pytest.raises(Gone, match="too old"):
        world.jobs.watch(caller(), old)


def test_a_watch_shows_ones_own_jobs_and_an_operator_those_of_its_cluster(world: World) -> None:
    readers = {
        "alice": Reader(world, world.jobs.watch(caller())),
        "bob": Reader(world, world.jobs.watch(caller(BOB, "chemistry"))),
        "operator": Reader(world, world.jobs.watch(operator())),
        "stranger": Reader(world, world.jobs.watch(operator("elsewhere"))),
    }
    put(world, "hers")
    put(world, "his", caller(BOB, "chemistry"))
    world.advance(2)
    seen = {name: {key for key, _ in reader.jobs()} for name, reader in readers.items()}
    assert seen == {"alice": {"hers"}, "bob": {"his"}, "operator": {"hers", "his"}, "stranger": set()}


def test_a_list_and_a_watch_of_ones_own_go_through_no_records_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tenant's requests would cost others' answers: there may be a hundred thousand records."""
    looked_at = set[str]()

    def may_see_noted(who: Caller, record: RecordSummary) -> bool:
        looked_at.add(record.key.key)
        return may_see(who, record)

    put(world, "hers")
    put(world, "his", caller(BOB, "chemistry"))
    monkeypatch.setattr("redbox.jobs.service.may_see", may_see_noted)
    assert [job.key for job in world.run(world.jobs.list(caller())).items] == ["hers"]
    reader = Reader(world, world.jobs.watch(caller()))
    world.settle()
    assert [key for key, _ in reader.jobs()] == ["hers"]
    assert looked_at == {"hers"}
    assert {job.key for job in world.run(world.jobs.list(operator())).items} == {"hers", "his"}


def test_a_slow_watcher_is_dropped_with_a_reason_and_holds_up_nobody(world: World) -> None:
    async def take_one(events: AsyncIterator[WatchEvent]) -> WatchEvent:
        return await anext(events)

    slow = world.jobs.watch(caller())
    quick = Reader(world, world.jobs.watch(caller()))
    put(world, "one")
    world.run(take_one(slow))
    for number in range(50):
        put(world, f"more-{number}")
    world.advance(70)
    assert len({key for key, _ in quick.jobs()}) == 51
    event = world.run(take_one(slow))
    assert (event.type, "Too slow" in (event.message or "")) == ("error", True)
    with pytest.raises(StopAsyncIteration):
        world.run(take_one(slow))


def test_a_watcher_that_falls_behind_sees_the_last_state_only(world: World) -> None:
    put(world, "one")
    world.slurm.start("1")
    world.advance(3)
    world.slurm.end("1")
    world.advance(3)
    reader = Reader(world, world.jobs.watch(caller()))
    world.settle()
    assert reader.jobs() == [("one", Phase.SUCCEEDED)]


def test_a_job_that_runs_between_two_polls_is_shown_at_its_end_with_its_start(world: World) -> None:
    put(world, "one")
    world.advance(3)
    reader = Reader(world, world.jobs.watch(caller(), world.run(world.jobs.list(caller())).revision))
    world.settle()
    world.slurm.start("1")
    world.slurm.end("1")
    world.advance(30)
    assert {phase for _, phase in reader.jobs()} == {Phase.SUCCEEDED}
    last = [event.job for event in reader.events if event.job][-1]
    assert last.started_at


def test_pages_give_every_job_once_and_the_first_ones_revision(world: World) -> None:
    for number in range(7):
        put(world, f"key-{number}")
    first = world.run(world.jobs.list(caller(), page=PageRequest(3)))
    put(world, "key-3x")
    second = world.run(world.jobs.list(caller(), page=PageRequest(3, first.next)))
    third = world.run(world.jobs.list(caller(), page=PageRequest(3, second.next)))
    keys = [job.key for page in (first, second, third) for job in page.items]
    assert keys == [*(f"key-{number}" for number in range(4)), "key-3x", "key-4", "key-5", "key-6"]
    assert first.revision == third.revision
    assert third.next is None


@pytest.mark.parametrize("token", ["x", "W10=", "bm9uc2Vuc2U=", "é"])
def test_a_made_up_token_is_refused(world: World, token: str) -> None:
    with pytest.raises(NotAcceptable, match="not made by red-box"):
        world.run(world.jobs.list(caller(), page=PageRequest(3, token)))


def test_a_list_is_filtered_by_phase_and_namespace(world: World) -> None:
    put(world, "one")
    put(world, "two")
    put(world, "three", caller(namespace="other"))
    world.slurm.start("1")
    world.advance(3)
    running = world.run(world.jobs.list(operator(), Filters(phases=frozenset({Phase.RUNNING}))))
    assert [job.key for job in running.items] == ["one"]
    others = world.run(world.jobs.list(operator(), Filters(namespace="other")))
    assert [job.key for job in others.items] == ["three"]


def test_nobody_sees_a_state_that_is_not_on_the_disk(world: World) -> None:
    put(world, "one")
    world.advance(3)
    reader = Reader(world, world.jobs.watch(caller()))
    world.settle()
    seen = len(reader.events)
    world.journal._database._db.execute("PRAGMA query_only = 1")
    world.slurm.start("1")
    world.advance(5)
    assert [event.type for event in reader.events[seen:] if event.type != "bookmark"] == []
    assert world.run(world.jobs.get(caller(), "one")).stale_since is not None
    world.journal._database._db.execute("PRAGMA query_only = 0")
    world.advance(15)
    assert reader.jobs()[-1] == ("one", Phase.RUNNING)


async def test_ten_watchers_each_see_each_job(tmp_path: Path) -> None:
    """On the real event loop and clock."""
    journal = Journal(tmp_path)
    async with JobService(journal, SimulatedSlurm(SimulatedClock()), Marks(SECRET, "hpc1")) as jobs:

        async def keys(number: int) -> set[str]:
            seen: set[str] = set()
            async for event in jobs.watch(caller()):
                seen |= {event.job.key} if event.job else set()
                if len(seen) == number:
                    return seen
            return seen

        readers = [asyncio.create_task(keys(20)) for _ in range(10)]
        await asyncio.gather(*(jobs.put(caller(), f"key-{n}", 1, request()) for n in range(20)))
        everything = await asyncio.wait_for(asyncio.gather(*readers), 60)
        assert everything == [{f"key-{n}" for n in range(20)}] * 10
    journal.close()
