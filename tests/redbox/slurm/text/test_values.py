"""Times and durations in Slurm's many forms."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.slurm.text.values import read_number, read_time, text_or_none
from redbox_shared.sbatch_options import read_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:30:00", 1800),
        ("1-00:00:00", 86400),
        ("2-12", 216000),
        ("2-12:30", 217800),
        ("30", 1800),
        ("1:30", 90),
        ("90:30", 5430),
        ("1-12:30:15", 131415),
        ("10:00:00.000", 36000),
        ("UNLIMITED", None),
        ("NONE", None),
        ("", None),
        ("-1", None),
    ],
)
def test_a_duration_is_seconds_and_unlimited_is_none(text: str, seconds: int | None) -> None:
    assert read_duration(text) == seconds


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_every_duration_that_slurm_prints_is_read(days: int, hours: int, minutes: int, seconds: int) -> None:
    expected = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert read_duration(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == expected


@pytest.mark.parametrize(
    "text", ["N/A", "Unknown", "None", "", "0", "-5", "2026-11-21T09:41:38", "9" * 30, "١٢"]
)
def test_what_is_no_moment_is_none(text: str) -> None:
    assert read_time(text) is None


def test_a_moment_is_seconds_since_1970_in_nobodys_time_zone() -> None:
    assert read_time("1795254165") == datetime(2026, 11, 21, 9, 42, 45, tzinfo=UTC)


@pytest.mark.parametrize("text", ["UNLIMITED", "N/A", "", "-1", "1.5", "²"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert read_number(text) is None


def test_slurms_words_for_nothing_are_none() -> None:
    assert [text_or_none(word) for word in ("(null)", "N/A", "None assigned", "n1")] == [
        None,
        None,
        None,
        "n1",
    ]
