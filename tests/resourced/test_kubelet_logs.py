"""What a reader gets, of streams that come in pieces of any size."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox_api.client import LogAnswer, LogQuery, RedboxClient
from redbox_api.errors import Unreachable
from redbox_api.models import ArrayCounts, ArrayTask, Job, OwnerRef, Phase
from redbox_resourced import kubelet_logs
from redbox_resourced.kubelet_logs import LONGEST_LINE, PodLog, _Lines
from redbox_resourced.log_request import LogRequest

JOB = Job(
    key="k",
    attempt=1,
    owner=OwnerRef(cluster="prod", namespace="alice", account="default"),
    user="alice",
    phase=Phase.RUNNING,
)
BROKEN = b"<broken>"


class Files:
    """A red-box that has these pieces of each stream; `BROKEN` among them breaks an answer off."""

    def __init__(self, **streams: Sequence[bytes]) -> None:
        self.looks = 0
        self._streams: Mapping[str, list[bytes]] = {name: list(pieces) for name, pieces in streams.items()}

    async def get_job(self, *_: Any, **__: Any) -> Job:
        self.looks += 1
        return array("SSS")

    @asynccontextmanager
    async def read_log(self, _: str, query: LogQuery) -> AsyncGenerator[LogAnswer, None]:
        pieces = self._streams.get(query.stream if query.task is None else f"task_{query.task}", [])
        if query.task is not None and query.stream == "stderr":
            pieces = []
        content = b"".join(piece for piece in pieces if piece != BROKEN)
        start = query.offset
        if query.tail_lines is not None:
            lines = content.splitlines(keepends=True)
            kept = lines[-query.tail_lines :] if query.tail_lines else []
            start = len(content) - len(b"".join(kept))
        yield LogAnswer("g", start, self._from(pieces, start), start >= len(content))

    async def _from(self, pieces: list[bytes], start: int) -> AsyncIterator[bytes]:
        position = 0
        for piece in list(pieces):
            if piece == BROKEN:
                pieces.remove(piece)
                raise Unreachable("the line broke")
            wanted = piece[max(0, start - position) :]
            position += len(piece)
            if wanted:
                yield wanted


def array(phases: str) -> Job:
    """S: the task has succeeded, R: it runs, P: it waits."""
    words = {"S": Phase.SUCCEEDED, "R": Phase.RUNNING, "P": Phase.PENDING}
    tasks = [
        ArrayTask(index=index, job_id=f"7_{index}", phase=words[phase], state="x")
        for index, phase in enumerate(phases)
    ]
    over = Phase.SUCCEEDED if set(phases) == {"S"} else Phase.RUNNING
    counts = ArrayCounts(total=len(phases))
    return JOB.model_copy(update={"phase": over, "array": counts, "tasks": tasks})


TASKS = {"task_0": [b"a\n", b"b\n"], "task_1": [b"c\n"], "task_2": [b"d\n", b"e"]}


async def read(files: Files, job: Job = JOB, **asked: Any) -> bytes:
    out: list[bytes] = []

    async def write(data: bytes) -> None:
        out.append(data)

    log = PodLog(cast("RedboxClient", files), "k", 1, job)
    await log.copy(LogRequest(**asked), write)
    return b"".join(out)


async def test_both_streams_come_whole_and_line_by_line() -> None:
    files = Files(stdout=[b"one\ntw", b"o\n"], stderr=[b"ba", b"d\n", b"end"])
    assert sorted((await read(files)).splitlines()) == [b"bad", b"end", b"one", b"two"]


@pytest.mark.parametrize("follow", [True, False])
async def test_a_broken_answer_is_gone_on_from(*, follow: bool) -> None:
    files = Files(stdout=[b"one\n", BROKEN, b"two\n", BROKEN, b"three\n"])
    assert await read(files, follow=follow, streams=("stdout",)) == b"one\ntwo\nthree\n"


async def test_no_more_lines_come_than_were_asked_for() -> None:
    files = Files(stdout=[b"1\n2\n3\n4\n"], stderr=[b"a\nb\nc\n"])
    assert sorted((await read(files, tail_lines=4)).split()) == [b"3", b"4", b"b", b"c"]
    assert sorted((await read(files, tail_lines=6)).split()) == [b"2", b"3", b"4", b"a", b"b", b"c"]
    assert await read(files, tail_lines=0) == b""


@pytest.mark.parametrize("limit", [0, 1, 5, 6, 99])
async def test_the_limit_is_of_bytes_and_of_both_streams(limit: int) -> None:
    files = Files(stdout=[b"one\n"], stderr=[b"two\n"])
    assert len(await read(files, limit_bytes=limit)) == min(limit, 8)


async def test_each_line_is_stamped_once() -> None:
    files = Files(stdout=[b"one\ntw", b"o\nthree"])
    lines = (await read(files, timestamps=True, streams=("stdout",))).decode().split("\n")
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
    assert [re.sub(f"^{time} ", "@", line) for line in lines] == ["@one", "@two", "@three"]


async def test_an_array_is_read_task_by_task() -> None:
    assert await read(Files(**TASKS), array("SSS")) == b"a\nb\nc\nd\ne"
    assert await read(Files(**TASKS), array("SRP")) == b"a\nb\nc\n"


async def test_the_last_lines_of_an_array_are_those_of_its_last_tasks() -> None:
    assert await read(Files(**TASKS), array("SSS"), tail_lines=2) == b"d\ne"
    assert await read(Files(**TASKS), array("SSS"), tail_lines=4) == b"b\nc\nd\ne"


async def test_a_follower_of_an_array_gets_each_task_once_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kubelet_logs, "LOOK_EVERY_S", 0.0)
    files = Files(**TASKS)
    assert await read(files, array("PRS"), follow=True) == b"d\nea\nb\nc\n"
    assert files.looks == 1


@given(st.lists(st.binary(max_size=40) | st.just(b"\n") | st.just(b"x" * LONGEST_LINE)))
def test_holding_lines_back_loses_and_doubles_nothing(pieces: list[bytes]) -> None:
    lines = _Lines(None)
    assert b"".join([*(lines.add(piece) for piece in pieces), lines.rest()]) == b"".join(pieces)
