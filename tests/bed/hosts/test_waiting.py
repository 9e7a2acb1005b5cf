"""Waiting ends when the thing is there, or with a sentence."""

from pathlib import Path

import pytest

from redbox_bed.core.errors import DaemonError
from redbox_bed.hosts.waiting import wait_until


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps.append(seconds)

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


def test_the_longer_it_takes_the_less_often_it_is_asked_for() -> None:
    clock = Clock()
    wait_until(lambda: clock.now > 20, 30, "never", clock=clock, sleep=clock.sleep)
    assert clock.sleeps == sorted(clock.sleeps)
    assert clock.sleeps[-1] == 10 * clock.sleeps[0]


def test_what_does_not_come_is_said_with_the_time_it_was_given() -> None:
    clock = Clock()
    with pytest.raises(DaemonError, match="munged did not serve within 10 s"):
        wait_until(lambda: False, 10, "munged did not serve", clock=clock, sleep=clock.sleep)


def test_an_error_shows_how_its_log_ends(tmp_path: Path) -> None:
    log = tmp_path / "munged.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    (shown,) = DaemonError("munged did not serve", log=log).__notes__
    assert shown.splitlines()[-1].endswith("line 99")
    assert "line 80" not in shown


def test_an_error_survives_the_loss_of_its_log(tmp_path: Path) -> None:
    (shown,) = DaemonError("munged did not serve", log=tmp_path / "gone").__notes__
    assert "No such file" in shown
