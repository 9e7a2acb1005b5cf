"""When each release's squeue says that a job would start."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from redbox.slurm.commands.squeue import StartRow, read_row
from redbox.slurm.views.expected_start import build_expected_start
from redbox_api.models import ExpectedStart
from tests.redbox.slurm.captured import RELEASES, start_rows
from tests.redbox.slurm.factories import PLAIN

NOON, ONE, TWO = (datetime(2026, 11, 25, hour, tzinfo=UTC) for hour in (12, 13, 14))


def row(at: datetime | None, nodes: str = "", reason: str = "Priority", **changes: object) -> StartRow:
    plain = read_row(PLAIN | {"Reason": reason})
    assert plain is not None
    return StartRow(replace(plain, **changes), at, nodes)  # type: ignore[arg-type]


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(
    ("release", "name", "expected"),
    [
        ("22.05", "requeued", ExpectedStart(reason="Priority", starts_at=at(1795258020))),
        ("24.11", "requeued", ExpectedStart(reason="Priority", starts_at=at(1795258140))),
        ("26.05", "requeued", ExpectedStart(reason="ReqNodeNotAvail, May be reserved for other job")),
        ("22.05", "het", ExpectedStart(reason="Resources", starts_at=at(1795257420))),
        ("24.11", "het", ExpectedStart(reason="Resources", starts_at=at(1795257540))),
        ("22.05", "begin", ExpectedStart(reason="BeginTime", not_before=at(1795260407))),
        ("24.11", "begin", ExpectedStart(reason="BeginTime", not_before=at(1795260407))),
        ("26.05", "begin", ExpectedStart(reason="BeginTime", not_before=at(1795382953))),
    ],
)
def test_the_estimate_is_the_start_time_of_what_waits(
    release: str, name: str, expected: ExpectedStart
) -> None:
    assert build_expected_start(start_rows(release, name)) == expected


@pytest.mark.parametrize("release", RELEASES)
def test_without_an_estimate_the_reason_is_left(release: str) -> None:
    held, array = (build_expected_start(start_rows(release, name)) for name in ("held", "array"))
    assert held == ExpectedStart(reason="JobHeldUser")
    assert array == ExpectedStart(reason="JobArrayTaskLimit")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", ["running", "ok", "cancelled"])
def test_a_job_that_does_not_wait_has_none(release: str, name: str) -> None:
    assert start_rows(release, name)
    assert build_expected_start(start_rows(release, name)) is None


def test_of_an_array_the_earliest_task_counts() -> None:
    running = row(NOON, "n1", array_job_id="7", array_task="1", state="RUNNING")
    tasks = [
        row(None, array_job_id="7", array_task="4-9"),
        row(TWO, "n2", array_job_id="7", array_task="2"),
        row(ONE, "n3", array_job_id="7", array_task="3"),
    ]
    expected = ExpectedStart(reason="Priority", starts_at=ONE, nodes="n3")
    assert build_expected_start([running, *tasks]) == expected


def test_a_het_job_starts_when_all_its_components_can() -> None:
    first, second = row(ONE, "n1", het_job_id="7"), row(TWO, "n[2-3]", het_job_id="7", het_offset=1)
    both = ExpectedStart(reason="Priority", starts_at=TWO, nodes="n[1-3]")
    assert build_expected_start([first, second]) == both
    assert build_expected_start([first, replace(second, nodes="n[1-3]")]) == both
    assert build_expected_start([first, replace(second, at=None)]) == ExpectedStart(reason="Priority")


def test_an_estimate_from_before_a_hold_is_not_shown() -> None:
    held = build_expected_start([row(ONE, "n1", reason="JobHeldAdmin")])
    assert held == ExpectedStart(reason="JobHeldAdmin")
