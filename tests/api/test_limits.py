"""How large an answer may be, and the share of the event loop's time that one red-box has."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import ValidationError

from redbox_api.limits.answer_limits import AnswerLimits, OutOfBounds
from redbox_api.limits.time_share import TURN_S, CommonShare, TimeShare
from redbox_api.models import JobList, PartitionEvent

LIMITS = AnswerLimits(longest=1 << 20, values=100, containers=10)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"items":[' + b"{}," * 9 + b"{}]}", "an answer with more than 10 objects and lists"),
        (b'{"items":[' + b"0," * 100 + b"0]}", "an answer with more than 100 values"),
        (b"[" * 11 + b'"' + b'\\"' * 200_000, "an answer with more than 10 objects and lists"),
    ],
)
def test_an_answer_that_costs_more_to_parse_is_refused(body: bytes, sentence: str) -> None:
    with pytest.raises(OutOfBounds, match=sentence):
        LIMITS.check(body)


@pytest.mark.parametrize("text", [b"{[," * 1000, b'\\"' * 1000 + b"{" * 1000, b"\\\\"])
def test_what_users_write_into_strings_is_not_counted(text: bytes) -> None:
    """Else a name of braces would make the list of a whole cluster too large."""
    LIMITS.check(b'{"items":[{"name":"' + text + b'"}]}')


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (JobList, b'{"revision":"e.1","items":[' + b"{}," * 1000 + b"{}]}"),
        (
            PartitionEvent,
            b'{"type":"gone","revision":"e.1","partition":{"name":"x","state":"UP","nodeStates":{'
            + b",".join(b'"%d":"x"' % number for number in range(1000))
            + b"}}}",
        ),
    ],
)
def test_of_a_list_or_mapping_only_the_first_error_is_built(
    form: type[JobList | PartitionEvent], body: bytes
) -> None:
    with pytest.raises(ValidationError) as found:
        form.model_validate_json(body)
    assert found.value.error_count() < 10


class Clock:
    """Time that passes where a test says so, and in sleep."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def work(share: TimeShare, clock: Clock, seconds: float) -> None:
    with share.charged():
        clock.now += seconds


async def test_over_its_share_a_red_box_rests(clock: Clock) -> None:
    share = TimeShare(0.05, 0.25, clock=clock)
    worked = 0.0
    while clock.now < 1000:
        work(share, clock, 0.001)
        worked += 0.001
        await share.rest()
    assert worked == pytest.approx(0.25 + 1000 * 0.05, rel=0.05)


async def test_within_its_share_it_never_rests(clock: Clock) -> None:
    share = TimeShare(0.05, 0.25, clock=clock)
    for _ in range(1000):
        work(share, clock, 0.001)
        await share.rest()
        clock.now += 0.1
    assert share.rested_s == 0


async def test_those_that_are_over_their_share_divide_what_all_have(clock: Clock) -> None:
    common = CommonShare(0.25)
    others = {TimeShare(0.05, 0.25, clock=clock) for _ in range(49)}
    common.overdrawn |= others
    share = TimeShare(0.05, 0.25, common, clock=clock)
    work(share, clock, 0.3)
    await share.rest()
    assert share.rested_s == pytest.approx((0.05 - 0.3 * 0.05 + TURN_S) / (0.25 / 50), rel=0.1)
    assert common.overdrawn == others


async def test_one_within_its_share_never_rests_for_those_that_are_over_theirs(clock: Clock) -> None:
    common = CommonShare(0.25)
    common.overdrawn |= {TimeShare(0.05, 0.25, clock=clock) for _ in range(100)}
    share = TimeShare(0.05, 0.25, common, clock=clock)
    for _ in range(1000):
        work(share, clock, 0.02)
        await share.rest()
        clock.now += 0.48
    assert share.rested_s == 0


async def test_a_block_that_fails_is_charged(clock: Clock) -> None:
    share = TimeShare(0.05, 0.25, clock=clock)

    def fails() -> None:
        with share.charged():
            clock.now += 1
            raise OutOfBounds

    with pytest.raises(OutOfBounds):
        fails()
    await share.rest()
    assert share.rested_s > 0
