"""A pod's report is kept in a bounded space, with what Kubernetes needs of it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from redbox.jobs.record.report_text import LONGEST_FINAL, LONGEST_LIVE, report_text
from redbox_api.pod_report import (
    LONGEST_MESSAGE,
    MAX_EVENTS,
    ContainerReport,
    ContainerState,
    PodEvent,
    PodReport,
    Terminated,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def full_report(containers: int, message: str, *, done: bool) -> PodReport:
    ended = ContainerState(
        terminated=Terminated(exit_code=3, reason="Error", message=message, finished_at=AT)
    )
    return PodReport(
        at=AT,
        done=done,
        message=message,
        containers=[
            ContainerReport(name=f"c{number}", image_id="sha256:0", state=ended, last_state=ended)
            for number in range(containers)
        ],
        events=[
            PodEvent(number=number, reason="Unhealthy", message=message, at=AT)
            for number in range(1, MAX_EVENTS + 1)
        ],
    )


@pytest.mark.parametrize(("done", "longest"), [(False, LONGEST_LIVE), (True, LONGEST_FINAL)])
@pytest.mark.parametrize("character", ["x", "語", "\0"])
def test_it_fits_and_keeps_how_each_container_ended(*, done: bool, longest: int, character: str) -> None:
    text = report_text(full_report(8, character * LONGEST_MESSAGE, done=done))
    assert len(text.encode()) <= longest
    kept = PodReport.model_validate_json(text)
    assert [
        container.state.terminated.exit_code for container in kept.containers if container.state.terminated
    ] == [3] * 8
    assert kept.done == done


def test_the_newest_events_are_the_ones_that_are_kept() -> None:
    kept = PodReport.model_validate_json(report_text(full_report(1, "語" * LONGEST_MESSAGE, done=True)))
    assert kept.events
    assert [event.number for event in kept.events] == list(
        range(MAX_EVENTS - len(kept.events) + 1, MAX_EVENTS + 1)
    )


def test_a_short_one_is_kept_as_it_is() -> None:
    report = full_report(2, "one sentence", done=True)
    assert PodReport.model_validate_json(report_text(report)) == report
