"""Lines since a time, of files without times: none is lost, and few come twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from redbox_api.client import RedboxClient
from redbox_resourced.kubelet.logs import time_index
from redbox_resourced.kubelet.logs.handler import LogHandler
from redbox_resourced.kubelet.logs.query import LogRequest
from redbox_resourced.kubelet.logs.time_index import (
    MOST_OFFSETS,
    MOST_STARTS,
    LogTimeIndex,
    PodLogTimeIndexes,
)
from redbox_resourced.kubelet.turns import NamespaceTurns
from tests.resourced.fakes import Files
from tests.resourced.pods.factories import RUNS, pod_job, report, running_pod

BEGAN = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> datetime:
        return self.now


def after(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def offset_since(log: LogTimeIndex, seconds: float) -> int:
    """Where a reader of the lines since then begins."""
    seen = log.before(after(seconds))
    return seen.offset if seen else 0


def read_line_by_line(lines: int, every_s: float) -> LogTimeIndex:
    clock = Clock()
    log = LogTimeIndex(clock)
    for number in range(lines):
        clock.now = after(number * every_s)
        log.read(b"123456789\n", "g", 10 * number)
    return log


def test_a_reader_goes_on_after_the_last_line_that_was_there_before() -> None:
    log = read_line_by_line(3, every_s=60)
    assert [offset_since(log, seconds) for seconds in (-1, 0, 59, 60, 119, 120, 999)] == [
        0,
        10,
        10,
        20,
        20,
        30,
        30,
    ]


def test_it_begins_with_a_whole_line() -> None:
    log = LogTimeIndex(Clock())
    log.read(b"one\ntw", "g", 0)
    assert offset_since(log, 1) == 4
    log.read(b"o", "g", 6)
    assert offset_since(log, 1) == 4


@pytest.mark.parametrize("every_s", [0.001, 1.0, 30.0])
def test_no_line_since_then_is_ever_left_out_and_little_is_kept(every_s: float) -> None:
    lines = 1000
    log = read_line_by_line(lines, every_s)
    assert len(log._seen) <= MOST_OFFSETS
    for number in range(0, lines, 7):
        assert offset_since(log, number * every_s) <= 10 * (number + 1)
    assert offset_since(log, lines * every_s) == 10 * lines  # nothing came since


def test_another_file_of_that_start_is_another_log() -> None:
    log = LogTimeIndex(Clock())
    log.read(b"one\n", "g", 0)
    log.read(b"a\n", "h", 0)
    seen = log.before(after(1))
    assert seen is not None
    assert (seen.generation, seen.offset) == ("h", 2)


def test_of_a_pod_that_starts_again_and_again_little_is_kept() -> None:
    pods = PodLogTimeIndexes()
    first = pods.of("uid", "main", 0)
    assert pods.of("uid", "main", 0) is first
    for restart in range(1, MOST_STARTS + 1):
        pods.of("uid", "main", restart)
    assert pods.of("uid", "main", 0) is not first
    pods.forget("uid")
    assert not pods._by_pod


class PodFiles(Files):
    """The log of a pod that runs."""

    async def get_job(self, *_: Any, **__: Any) -> Any:
        return pod_job(pod=report(main=RUNS))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    class Now(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            assert tz is UTC
            return clock.now

    monkeypatch.setattr(time_index, "datetime", Now)
    return clock


async def logged(handler: LogHandler, files: Files, **asked: Any) -> bytes:
    out: list[bytes] = []

    async def write(data: bytes) -> None:
        out.append(data)

    log, query = await handler._log_of_container(
        cast("RedboxClient", files), running_pod("Running"), "main", LogRequest(**asked)
    )
    await log.copy(query, write)
    return b"".join(out)


async def test_after_silent_minutes_a_reader_gets_what_has_come_since(clock: Clock) -> None:
    """As Airflow reads on: it is never refused, and gets no line twice."""
    handler = LogHandler(cast("Any", None), NamespaceTurns())
    files = PodFiles(stdout=[b"one\n", b"two\n"])
    assert await logged(handler, files) == b"one\ntwo\n"
    clock.now = after(300)
    assert await logged(handler, files, since=after(2)) == b""
    files._streams["stdout"].append(b"three\n")
    assert await logged(handler, files, since=after(2)) == b"three\n"
    assert await logged(handler, files, since=after(-1)) == b"one\ntwo\nthree\n"


async def test_what_nobody_has_read_comes_whole(clock: Clock) -> None:
    handler = LogHandler(cast("Any", None), NamespaceTurns())
    files = PodFiles(stdout=[b"one\n", b"two\n"])
    clock.now = after(300)
    assert await logged(handler, files, since=after(200)) == b"one\ntwo\n"


async def test_last_lines_are_counted_first(clock: Clock) -> None:
    handler = LogHandler(cast("Any", None), NamespaceTurns())
    files = PodFiles(stdout=[b"one\n", b"two\n"])
    await logged(handler, files)
    clock.now = after(300)
    assert await logged(handler, files, since=after(2), tail_lines=1) == b"two\n"
    assert await logged(handler, files, since=after(2), tail_lines=9) == b""
