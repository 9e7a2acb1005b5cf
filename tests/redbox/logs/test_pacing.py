"""How often files are read, and how reads are shared among users; the test sets the clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest

from redbox.logs.pacing import PollIntervals, ReadBudget, pause_after

ALICE, BOB = 2001, 2002


@dataclass
class Time:
    """Goes on only where somebody sleeps."""

    now: float = 100.0
    late: float = 0.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds + self.late
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("silence", "pause"), [(0.0, 0.1), (0.5, 0.1), (5.0, 1.0), (25.0, 5.0), (599.0, 5.0), (600.0, 10.0)]
)
def test_the_longer_the_silence_the_longer_the_pause(silence: float, pause: float) -> None:
    assert pause_after(silence, PollIntervals()) == pytest.approx(pause)


async def test_a_look_alone_does_not_wait() -> None:
    time = Time()
    await ReadBudget(10, time, time.sleep).take(ALICE)
    assert time.slept == []


async def test_no_more_looks_a_second_than_the_budget_has() -> None:
    time = Time()
    budget = ReadBudget(10, time, time.sleep)
    await asyncio.gather(*(budget.take(ALICE) for _ in range(51)))
    assert time.now - 100.0 == pytest.approx(5.0, abs=0.11)


async def test_timers_that_fire_late_lower_the_pace_for_nobody() -> None:
    time = Time(late=0.02)
    budget = ReadBudget(100, time, time.sleep)
    await asyncio.gather(*(budget.take(ALICE) for _ in range(501)))
    assert time.now - 100.0 == pytest.approx(5.0, abs=0.11)


async def test_a_look_that_costs_less_takes_less_of_the_budget() -> None:
    time = Time()
    budget = ReadBudget(10, time, time.sleep)
    await asyncio.gather(*(budget.take(ALICE, 0.25) for _ in range(201)))
    assert time.now - 100.0 == pytest.approx(5.0, abs=0.11)


async def test_a_user_with_many_files_does_not_hold_up_one_with_few() -> None:
    time = Time()
    budget = ReadBudget(10, time, time.sleep)
    order: list[int] = []

    async def look(user: int) -> None:
        await budget.take(user)
        order.append(user)

    await asyncio.gather(*(look(ALICE) for _ in range(100)), *(look(BOB) for _ in range(5)))
    assert Counter(order[:12])[BOB] == 5
    assert Counter(order) == {ALICE: 100, BOB: 5}


async def test_a_reader_who_left_takes_no_turn_from_others() -> None:
    time = Time()
    budget = ReadBudget(10, time, time.sleep)
    await budget.take(ALICE)
    gone = [asyncio.create_task(budget.take(ALICE)) for _ in range(50)]
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    before = time.now
    await budget.take(ALICE)
    assert time.now - before <= 0.3
