"""A large array keeps nobody waiting, and a caller who asks for many of them takes memory for one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from redbox.core.observations import ObservedStatus, TaskObservation
from redbox.core.turns import ShareKind, working_for
from redbox.jobs.query.array_tasks import PIECE, ArrayTasks
from redbox.jobs.record.api_view import MOST_LISTED, job_view
from redbox.jobs.record.record import JobRecord
from redbox.slurm.text.states import JOB_STATES
from redbox_companion.redbox_client import MOST_BYTES
from tests.redbox.jobs.factories import MACHINE, RECORD

ALICE, BOB = "alice", "bob"
LONGEST = TaskObservation(4_000_000, "4294967295_4000000", "OUT_OF_MEMORY", 255, None)


def array(count: int) -> JobRecord:
    """With tasks as long as they can be."""
    return replace(RECORD, status=ObservedStatus(state="RUNNING", array_size=100, tasks=(LONGEST,) * count))


class Store:
    """Counts how often it is read."""

    def __init__(self, record: JobRecord) -> None:
        self.record = record
        self.reads = 0

    async def read(self) -> JobRecord:
        self.reads += 1
        return self.record


@pytest.mark.parametrize(("count", "listed"), [(0, 0), (MOST_LISTED, MOST_LISTED), (MOST_LISTED + 1, None)])
async def test_tasks_are_listed_as_far_as_a_companion_can_read_them(count: int, listed: int | None) -> None:
    record, tasks = await ArrayTasks(JOB_STATES).listed(ALICE, Store(array(count)).read)
    job = job_view(record, MACHINE, epoch="e", slurm_cluster=None, stale_since=None, tasks=tasks)
    assert (None if job.tasks is None else len(job.tasks)) == listed
    assert len(job.model_dump_json(by_alias=True, exclude_none=True)) < MOST_BYTES


async def test_a_job_that_is_no_array_has_no_list() -> None:
    assert await ArrayTasks(JOB_STATES).listed(ALICE, Store(RECORD).read) == (RECORD, None)


async def test_others_are_served_between_the_pieces_of_a_large_array() -> None:
    asked = asyncio.create_task(ArrayTasks(JOB_STATES).listed(ALICE, Store(array(5 * PIECE)).read))
    turns = 0
    while not asked.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 5
    _, tasks = asked.result()
    assert tasks is not None
    assert len(tasks) == 5 * PIECE


async def test_large_arrays_are_listed_one_by_one() -> None:
    array_tasks, first, second = ArrayTasks(JOB_STATES), Store(array(2 * PIECE)), Store(array(2 * PIECE))
    one = asyncio.create_task(array_tasks.listed(ALICE, first.read))
    other = asyncio.create_task(array_tasks.listed(BOB, second.read))
    while not one.done():
        assert second.reads < 2
        await asyncio.sleep(0)
    await other
    assert second.reads == 2


async def test_a_caller_who_asks_for_many_keeps_no_other_from_its_turn() -> None:
    array_tasks, store, ended = ArrayTasks(JOB_STATES), Store(array(2 * PIECE)), list[str]()

    async def ask(name: str, caller: str) -> None:
        await array_tasks.listed(caller, store.read)
        ended.append(name)

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(ask("alice", ALICE))
        group.create_task(ask("bob", BOB))
    assert ended.index("bob") <= 2
    assert len(ended) == 21


async def test_a_caller_whose_turn_is_far_keeps_no_other_from_its_listing() -> None:
    array_tasks, store = ArrayTasks(JOB_STATES), Store(array(2 * PIECE))
    asking = array_tasks.listed(ALICE, store.read)
    asking.send(None)  # alice's only step: the next would be in her turn
    _, tasks = await array_tasks.listed(BOB, store.read)
    assert tasks is not None
    asking.close()


async def test_large_arrays_are_listed_in_a_share_of_their_own() -> None:
    kinds: list[ShareKind | None] = []

    async def read() -> JobRecord:
        owner = working_for.get()
        kinds.append(owner.share.kind if owner else None)
        return array(2 * PIECE)

    await ArrayTasks(JOB_STATES).listed(ALICE, read)
    assert kinds == [None, ShareKind.ARRAYS]
