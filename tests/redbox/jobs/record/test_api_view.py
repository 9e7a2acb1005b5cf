"""What a record shows of itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from redbox.core.observations import ObservedStatus
from redbox.jobs.record.api_view import job_view
from redbox.jobs.record.messages import explain
from redbox.jobs.record.pods import with_line
from redbox.jobs.record.record import JobRecord
from redbox_api.models import Phase
from redbox_shared.wire import LAUNCH_FAILED
from tests.redbox.jobs.factories import MACHINE, RECORD

REPORT = b'{"at": "2026-01-01T00:00:00Z"}'
ENDED = b'{"at": "2026-01-01T00:00:00Z", "done": true}'
RAN_AT_12 = b"""{"at": "2026-01-01T12:00:00Z", "containers": [
    {"name": "main", "state": {"running": {"startedAt": "2026-01-01T12:00:00Z"}}}]}"""
AT_11_55, AT_12_05 = datetime(2026, 1, 1, 11, 55, tzinfo=UTC), datetime(2026, 1, 1, 12, 5, tzinfo=UTC)
RUN_BEFORE = ObservedStatus(state="FAILED", exit_code=70, nodes="n1")
CANCELLED = ObservedStatus(state="CANCELLED", nodes="n1")
POD = replace(RECORD, is_pod=True, phase=Phase.CANCELLED, status=CANCELLED)
BY_ROOT = replace(CANCELLED, cancelled_by=0)
JOB = replace(RECORD, phase=Phase.FAILED, status=BY_ROOT, no_sign_of_start=True)


@pytest.mark.parametrize("is_pod", [True, False])
def test_a_job_says_whether_it_is_a_pods_before_its_runner_reports(*, is_pod: bool) -> None:
    record = replace(RECORD, is_pod=is_pod)
    job = job_view(record, MACHINE, epoch="e", slurm_cluster=None, stale_since=None)
    assert (job.is_pod, job.pod) == (is_pod, None)


@pytest.mark.parametrize(
    ("record", "is_failed_launch"),
    [
        (JOB, True),
        (replace(JOB, phase=Phase.CANCELLED, no_sign_of_start=False), False),
        (replace(JOB, phase=Phase.CANCELLED, status=CANCELLED), False),
        (replace(JOB, phase=Phase.CANCELLED, cancel_requested=True), False),
        (replace(JOB, cancel_requested=True, cancel_after_end=True), True),
        (replace(JOB, phase=Phase.RUNNING), False),
    ],
)
def test_a_job_that_its_node_could_not_launch_has_a_reason_of_its_own(
    record: JobRecord, *, is_failed_launch: bool
) -> None:
    job = job_view(record, MACHINE, epoch="e", slurm_cluster=None, stale_since=None)
    assert (job.reason == LAUNCH_FAILED) is is_failed_launch
    assert ("cancelled on n1 before its script began" in (explain(record) or "")) is is_failed_launch


@pytest.mark.parametrize(
    ("record", "is_failed_launch"),
    [
        (POD, True),
        (replace(POD, status=BY_ROOT), True),
        (replace(POD, status=replace(CANCELLED, cancelled_by=RECORD.user.uid)), False),
        (replace(POD, status=replace(CANCELLED, nodes="")), False),
        (replace(POD, cancel_requested=True), False),
        (replace(POD, cancel_requested=True, cancel_after_end=True), True),
        (replace(POD, is_pod=False), False),
        (with_line(POD, REPORT), False),
        (replace(with_line(POD, REPORT), run=2), True),
        (replace(with_line(POD, ENDED), run=2), False),
        (replace(with_line(POD, RAN_AT_12), status=replace(CANCELLED, started_at=AT_12_05)), True),
        (replace(with_line(POD, RAN_AT_12), status=replace(CANCELLED, started_at=AT_11_55)), False),
        (replace(with_line(POD, REPORT), run=2, phase=Phase.FAILED, status=RUN_BEFORE), True),
        (replace(with_line(POD, REPORT), phase=Phase.FAILED, status=RUN_BEFORE), False),
    ],
)
def test_a_pod_that_its_node_could_not_launch_or_not_once_more_has_a_reason_of_its_own(
    record: JobRecord, *, is_failed_launch: bool
) -> None:
    """slurmd cancels, as root, what may not be requeued; the queue does not show who has cancelled a job."""
    job = job_view(record, MACHINE, epoch="e", slurm_cluster=None, stale_since=None)
    assert (job.reason == LAUNCH_FAILED) is is_failed_launch
    words = "launched it once more on n1" if record.pod_report else "cancelled on n1 before its runner began"
    assert (words in (explain(record) or "")) is is_failed_launch
