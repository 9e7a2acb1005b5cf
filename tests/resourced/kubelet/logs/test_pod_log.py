"""What a reader gets, of streams that come in pieces of any size."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox_api.models import Phase
from redbox_resourced.kubelet.logs import streams
from redbox_resourced.kubelet.logs.lines import LONGEST_LINE, LineBuffer
from tests.resourced.fakes import BROKEN, JOB, Files, array, read

TIMED_OUT = JOB.model_copy(
    update={"phase": Phase.FAILED, "state": "TIMEOUT", "message": "It ran longer than its time limit."}
)


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


async def test_what_red_box_does_not_give_is_said_and_the_other_stream_comes() -> None:
    files = Files(stdout=[b"one"], stderr=[b"two\n"])
    files.refused = {"stderr"}
    assert await read(files) == b"one\nredbox: stderr cannot be read: HTTP 403: it is locked\n"
    assert (await read(files, tail_lines=1)).startswith(b"one\nredbox: ")


async def test_an_end_that_no_exit_code_tells_is_the_last_line() -> None:
    files = Files(stdout=[b"one\ntwo"])
    message = b"redbox: It ran longer than its time limit.\n"
    assert await read(files, TIMED_OUT) == b"one\ntwo\n" + message
    assert await read(files, TIMED_OUT, tail_lines=2) == b"two\n" + message
    assert await read(files, TIMED_OUT, tail_lines=1) == message
    assert await read(files, TIMED_OUT, tail_lines=0) == b""
    assert await read(files, TIMED_OUT, streams=("stdout",)) == b"one\ntwo"


async def test_a_follower_is_told_of_such_an_end_when_it_has_come() -> None:
    files = Files(stdout=[b"one\n"])
    files.later = [TIMED_OUT]
    assert await read(files, follow=True) == b"one\nredbox: It ran longer than its time limit.\n"
    assert await read(files, follow=True) == b"one\n"


async def test_a_follower_gets_the_whole_log_of_a_job_that_red_box_tells_no_more_of() -> None:
    files = Files(stdout=[b"one\n"])
    files.refused = {"get_job"}
    assert await read(files, follow=True) == b"one\n"


async def test_a_follower_waits_until_slurm_tells_whether_it_is_an_array(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "POLL_S", 0.0)
    submitted = JOB.model_copy(update={"state": None, "phase": Phase.PENDING})
    files = Files(stdout_0=[b"zero\n"])
    files.later = [submitted, array("S")]
    assert (await read(files, submitted, follow=True)).endswith(b"zero\n")
    assert "stdout" not in files.asked


@given(st.lists(st.binary(max_size=40) | st.just(b"\n") | st.just(b"x" * LONGEST_LINE)))
def test_holding_lines_back_loses_and_doubles_nothing(pieces: list[bytes]) -> None:
    lines = LineBuffer(None)
    assert b"".join([*(lines.add(piece) for piece in pieces), lines.rest()]) == b"".join(pieces)


async def test_what_comes_after_the_last_lines_were_counted_is_all_shown() -> None:
    files = Files(stdout=[b"1\n2\n"], stderr=[])
    files.late = {"stdout": [b"3\n", b"4\n"], "stderr": [b"bang\n", b"boom\n"]}
    shown = await read(files, follow=True, tail_lines=10)
    assert sorted(shown.split()) == [b"1", b"2", b"3", b"4", b"bang", b"boom"]


async def test_a_count_of_the_last_lines_that_breaks_off_is_begun_again() -> None:
    assert await read(Files(stdout=[b"1\n", BROKEN, b"2\n"], stderr=[]), tail_lines=1) == b"2\n"
