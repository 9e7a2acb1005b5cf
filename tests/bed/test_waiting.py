"""Waiting ends when the thing is there, or with a sentence."""

import pytest

from redbox_bed.errors import DaemonError
from redbox_bed.waiting import wait_until


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def test_what_is_there_is_not_waited_for() -> None:
    clock = Clock()
    wait_until(lambda: True, 10, "never", clock=clock, sleep=clock.sleep)
    assert clock.now == 0


def test_what_comes_is_seen() -> None:
    clock = Clock()
    wait_until(lambda: clock.now > 3, 10, "never", clock=clock, sleep=clock.sleep)
    assert 3 < clock.now < 4


def test_what_does_not_come_is_said_with_the_time_it_was_given() -> None:
    clock = Clock()
    with pytest.raises(DaemonError, match="munged did not serve within 10 s"):
        wait_until(lambda: False, 10, "munged did not serve", clock=clock, sleep=clock.sleep)
