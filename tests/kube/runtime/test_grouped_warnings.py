"""Failures of many at once are one line in the log, and one more when they are over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from redbox_kube.runtime.grouped_warnings import GroupedWarnings

AWAY = "the API server does not answer"
MANY = [f"n{number}" for number in range(200)]


@pytest.fixture
def logged() -> Iterator[list[EventDict]]:
    with capture_logs() as logged:
        yield logged


async def gathered() -> None:
    """The lines of the log, without the time in which failures are gathered."""
    for _ in range(3):
        await asyncio.sleep(0)


def lines(logged: list[EventDict]) -> list[tuple[str, int]]:
    return [(line["event"], line["count"]) for line in logged]


async def test_one_cause_is_told_once_for_all_that_met_it_and_once_when_it_is_over(
    logged: list[EventDict],
) -> None:
    troubles = GroupedWarnings("missed", gathers_s=0)
    for _ in range(3):
        for name in MANY:
            troubles.failed(name, AWAY)
        await gathered()
    assert logged == [
        {"event": "missed", "log_level": "warning", "count": 200, "example": "n0", "error": AWAY}
    ]
    for name in MANY:
        troubles.recovered(name)
    assert lines(logged) == [("missed", 200), ("missed: over", 200)]


async def test_each_cause_is_told_apart(logged: list[EventDict]) -> None:
    troubles = GroupedWarnings("missed", gathers_s=0)
    troubles.failed("n1", AWAY)
    troubles.failed("n2", "forbidden")
    await gathered()
    troubles.recovered("n1")
    troubles.recovered("n2")
    assert [line["error"] for line in logged] == [AWAY, "forbidden", AWAY, "forbidden"]


async def test_a_refusal_that_names_each_thing_is_one_cause(logged: list[EventDict]) -> None:
    troubles = GroupedWarnings("missed", gathers_s=0)
    for name in ("alice/a", "bob/b"):
        namespace, pod = name.split("/")
        troubles.failed(name, f'pods "{pod}" is forbidden in the namespace "{namespace}"')
    await gathered()
    assert lines(logged) == [("missed", 2)]


async def test_a_cause_that_meets_twice_as_many_is_told_again(logged: list[EventDict]) -> None:
    troubles = GroupedWarnings("missed", gathers_s=0)
    for name in MANY[:5]:
        troubles.failed(name, AWAY)
        await gathered()
    assert lines(logged) == [("missed", 1), ("missed", 2), ("missed", 4)]


async def test_what_came_and_went_in_a_moment_is_told_all_the_same(logged: list[EventDict]) -> None:
    troubles = GroupedWarnings("missed", gathers_s=0)
    troubles.failed("n1", AWAY)
    troubles.recovered("n1")
    await gathered()
    assert lines(logged) == [("missed", 1), ("missed: over", 1)]


async def test_a_thing_that_fails_by_another_cause_is_rid_of_the_first(logged: list[EventDict]) -> None:
    troubles = GroupedWarnings("missed", gathers_s=0)
    troubles.failed("n1", AWAY)
    await gathered()
    troubles.failed("n1", "forbidden")
    await gathered()
    assert [(line["event"], line["error"]) for line in logged] == [
        ("missed", AWAY),
        ("missed: over", AWAY),
        ("missed", "forbidden"),
    ]


async def test_what_never_failed_has_nothing_to_be_told(logged: list[EventDict]) -> None:
    GroupedWarnings("missed", gathers_s=0).recovered("n1")
    await gathered()
    assert logged == []


@pytest.mark.parametrize(
    ("error", "words"), [(TimeoutError(), "no answer in time"), (BrokenPipeError(), "BrokenPipeError")]
)
async def test_an_error_without_a_message_is_a_timeout_only_where_it_is_one(
    logged: list[EventDict], error: Exception, words: str
) -> None:
    GroupedWarnings("missed", gathers_s=0).failed("n0", error)
    await gathered()
    assert logged[0]["error"] == words
