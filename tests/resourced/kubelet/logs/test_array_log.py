"""What a reader of an array's log gets: the same as a companion writes."""

from __future__ import annotations

import re

import pytest

from redbox_resourced.kubelet.logs import streams
from tests.resourced.fakes import Files, array, read

ZERO, ONE, TWO = (f"redbox: task {index}: SUCCEEDED\n".encode() for index in range(3))
TASKS = {"stdout_0": [b"a\n", b"b\n"], "stdout_1": [b"c\n"], "stdout_2": [b"d\n", b"e\n"]}
WHOLE = ZERO + b"a\nb\n" + ONE + b"c\n" + TWO + b"d\ne\n"


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "POLL_S", 0.0)


async def test_each_task_stands_below_its_line() -> None:
    assert await read(Files(**TASKS), array("SSS")) == WHOLE
    assert await read(Files(**TASKS), array("SFS")) == WHOLE.replace(
        b"1: SUCCEEDED", b"1: FAILED, exit code 2"
    )


async def test_a_tasks_stderr_comes_after_its_stdout() -> None:
    files = Files(stdout_0=[b"out\n"], stderr_0=[b"err\n"], stdout_1=[b"one\n"])
    assert await read(files, array("SS")) == ZERO + b"out\nerr\n" + ONE + b"one\n"


async def test_who_does_not_follow_sees_tasks_that_run_and_none_that_wait() -> None:
    running = b"redbox: task 1: RUNNING\n"
    assert await read(Files(**TASKS), array("SRP")) == ZERO + b"a\nb\n" + running + b"c\n"


async def test_a_line_that_a_task_left_open_is_not_gone_on_by_another() -> None:
    files = Files(stdout_0=[b"out"], stderr_0=[b"err"], stdout_1=[b"one"])
    assert await read(files, array("SS")) == ZERO + b"out\nerr\n" + ONE + b"one"


async def test_a_task_that_writes_nothing_has_its_line_at_the_end() -> None:
    files = Files(stdout_1=[b"c\n"])
    assert await read(files, array("SSS")) == ONE + b"c\n" + ZERO + TWO


@pytest.mark.parametrize("lines", range(10))
async def test_the_last_lines_are_those_of_the_whole_log(lines: int) -> None:
    expected = b"".join(WHOLE.splitlines(keepends=True)[-lines:]) if lines else b""
    assert await read(Files(**TASKS), array("SSS"), tail_lines=lines) == expected


async def test_no_more_lines_come_than_were_asked_for_where_tasks_write_nothing() -> None:
    assert await read(Files(stdout_1=[b"c\n", b"d\n"]), array("SSS"), tail_lines=2) == b"d\n" + TWO


async def test_tasks_before_the_last_lines_are_not_asked_for() -> None:
    files = Files(**TASKS)
    await read(files, array("SSS"), tail_lines=2)
    assert {name[-1] for name in files.asked} == {"2"}


async def test_each_line_of_an_array_is_stamped_once_our_own_too() -> None:
    lines = (await read(Files(**TASKS), array("SSS"), timestamps=True)).decode().splitlines()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
    assert [re.sub(f"^{time} ", "@", line) for line in lines] == [
        f"@{line}" for line in WHOLE.decode().splitlines()
    ]
    assert lines == sorted(lines, key=lambda line: line.split()[0])


@pytest.mark.parametrize("limit", [0, 5, len(ZERO), len(ZERO) + 3, len(WHOLE), 999])
async def test_the_limit_counts_our_own_lines_too(limit: int) -> None:
    assert await read(Files(**TASKS), array("SSS"), limit_bytes=limit) == WHOLE[:limit]


async def test_one_stream_alone_has_no_lines_of_ours_as_a_companions_stdout() -> None:
    files = Files(stdout_0=[b"out\n"], stderr_0=[b"err\n"])
    files.late = {"stdout_0": [b"more\n"]}
    assert await read(files, array("SS"), streams=("stdout",), follow=True) == b"out\nmore\n"
    assert await read(files, array("SS"), streams=("stderr",)) == ZERO + b"err\n" + ONE


async def test_a_follower_gets_each_task_once_it_has_ended() -> None:
    files = Files(**TASKS)
    files.later = [array("SRS"), array("SSS")]
    expected = TWO + b"d\ne\n" + ZERO + b"a\nb\n" + ONE + b"c\n"
    assert await read(files, array("PRS"), follow=True) == expected


async def test_a_follower_from_the_last_lines_on_gets_new_tasks_whole() -> None:
    files = Files(**TASKS)
    files.later = [array("SSS")]
    followed = await read(files, array("SSR"), follow=True, tail_lines=1)
    assert followed == b"c\n" + TWO + b"d\ne\n"


async def test_what_of_a_task_comes_late_has_a_heading_of_its_own() -> None:
    files = Files(stdout_0=[b"ze"], stdout_1=[b"one\n"])
    files.late = {"stdout_0": [b"ro"]}
    late = b"redbox: task 0: more of its output, which came late\n"
    assert await read(files, array("SS"), follow=True) == ZERO + b"ze\n" + ONE + b"one\n" + late + b"ro"


async def test_a_task_of_which_nothing_is_shown_yet_has_its_line_when_something_is() -> None:
    files = Files(stdout_1=[b"c\n"])
    files.late = {"stdout_0": [b"a\n"]}
    assert await read(files, array("SS"), follow=True) == ONE + b"c\n" + ZERO + b"a\n"


async def test_a_task_of_which_nothing_was_shown_is_asked_for_again_while_others_run() -> None:
    files = Files()
    files.later = [array("SR")] * 2 + [array("SS")]
    await read(files, array("SR"), follow=True)
    assert files.asked.count("stdout_0") == 5  # the looks at one that has ended, and the last
    assert files.asked.count("stdout_1") == 2


@pytest.mark.parametrize("follow", [True, False])
async def test_a_task_that_cannot_be_read_is_named_and_the_others_come(*, follow: bool) -> None:
    files = Files(stdout_1=[b"one\n"])
    files.refused = {"stdout_0"}
    said = b"redbox: stdout cannot be read: task 0: HTTP 403: it is locked\n"
    assert await read(files, array("SS"), follow=follow) == ONE + b"one\n" + ZERO + said


@pytest.mark.parametrize("follow", [True, False])
async def test_of_tasks_that_are_too_many_to_be_listed_it_says_where_their_output_is(*, follow: bool) -> None:
    many = array("SS").model_copy(update={"tasks": None, "working_directory": "/home/alice/work"})
    said = await read(Files(**TASKS), many, follow=follow)
    assert said.startswith(b"redbox: stdout cannot be read: the array has too many tasks")
    assert said.endswith(b"/home/alice/work\n")
