import pytest

from redbox_shared.backoff import Backoff


@pytest.mark.parametrize(
    ("failures", "pause_s"), [(0, 0.5), (1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (6, 10.0), (100_000, 10.0)]
)
def test_pauses_double_up_to_the_longest(failures: int, pause_s: float) -> None:
    assert Backoff(0.5, 10.0, jitter=0.0).pause_s(failures) == pause_s


def test_pauses_may_grow_more_slowly() -> None:
    assert Backoff(1.0, 10.0, factor=1.5, jitter=0.0).pause_s(3) == 2.25


def test_half_of_a_pause_is_random() -> None:
    pauses = [Backoff(1.0, 10.0).pause_s(4) for _ in range(200)]
    assert 4.0 <= min(pauses) < 5.0
    assert 7.0 < max(pauses) <= 8.0


def test_the_full_pause_has_no_jitter() -> None:
    assert Backoff(1.0, 10.0).full_pause_s(4) == 8.0
