"""What a record shows of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redbox.jobs.record.api_view import job_view
from tests.redbox.jobs.factories import MACHINE, RECORD


@pytest.mark.parametrize("is_pod", [True, False])
def test_a_job_says_whether_it_is_a_pods_before_its_runner_reports(*, is_pod: bool) -> None:
    record = replace(RECORD, is_pod=is_pod)
    job = job_view(record, MACHINE, epoch="e", slurm_cluster=None, stale_since=None)
    assert (job.is_pod, job.pod) == (is_pod, None)
