"""So many at once, and then one in some seconds; a call that is early is made later, once."""

from __future__ import annotations

import asyncio

from redbox_kube.runtime.paces import KEPT_AT_LEAST, Pace, PacedCalls


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_so_many_are_taken_at_once_and_then_one_in_some_seconds() -> None:
    clock = Clock()
    pace = Pace(2, 10.0, clock)
    assert [pace.take("a") for _ in range(3)] == [0.0, 0.0, 10.0]
    assert pace.take("b") == 0.0
    clock.now += 10
    assert [pace.take("a") for _ in range(2)] == [0.0, 10.0]
    clock.now += 1000
    assert [pace.take("a") for _ in range(3)] == [0.0, 0.0, 10.0]


def test_reservations_are_one_after_the_other() -> None:
    pace = Pace(1, 10.0, Clock())
    assert [pace.reserve("a") for _ in range(3)] == [0.0, 10.0, 20.0]


def test_keys_that_rest_are_not_kept() -> None:
    clock = Clock()
    pace = Pace(2, 1.0, clock)
    for number in range(100 * KEPT_AT_LEAST):
        clock.now += 0.1
        pace.take(str(number))
    assert len(pace._budgets) <= KEPT_AT_LEAST


async def test_a_call_that_is_early_is_made_later_and_once_for_all() -> None:
    made: list[str] = []
    called = asyncio.Event()

    def call(key: str) -> None:
        made.append(key)
        called.set()

    calls = PacedCalls(call, Pace(1, 0.01))
    for _ in range(100):
        calls("a")
    calls("b")
    assert made == ["a", "b"]
    called.clear()
    async with asyncio.timeout(60):
        await called.wait()
    assert made == ["a", "b", "a"]


async def test_all_keys_together_have_a_pace_too() -> None:
    made: list[str] = []
    calls = PacedCalls(made.append, Pace(10, 1.0), Pace(3, 3600.0))
    for number in range(10):
        calls(str(number))
    assert made == ["0", "1", "2"]
