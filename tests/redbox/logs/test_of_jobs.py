"""Which run's bytes are in a job's file, as its record moves."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest

from redbox.domain import JobKey, Owner, UnixUser
from redbox.jobs.records import Record, Seen
from redbox.jobs.service import Jobs
from redbox.logs.of_jobs import RecordSource
from redbox.logs.sources import Forgotten
from redbox_api.models import Phase

KEY = JobKey(Owner("prod", "physics", "default"), "k")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
REQUEUED = [
    (Phase.RUNNING, "RUNNING", 1, 1),
    (Phase.RUNNING, "COMPLETING", 2, 1),  # the first run ends, and Slurm counts the second already
    (Phase.PENDING, "PENDING", 2, 1),
    (Phase.RUNNING, "RUNNING", 2, 2),
    (Phase.RUNNING, "COMPLETING", 2, 2),
    (Phase.SUCCEEDED, "COMPLETED", 2, 2),
]


def record(phase: Phase, state: str, run: int) -> Record:
    return Record(
        key=KEY,
        user=UnixUser("alice", 2001),
        mark="m",
        body_id="b",
        created_at=NOW,
        doubt_since=NOW,
        phase=phase,
        run=run,
        seen=Seen(state=state, stdout="/home/alice/out"),
    )


def test_a_requeued_jobs_file_is_the_old_runs_until_the_new_one_works() -> None:
    jobs = SimpleNamespace(current=lambda _: None)
    source = RecordSource(cast("Jobs", jobs), KEY, "stdout", None)
    for phase, state, run, expected in REQUEUED:
        jobs.current = {KEY: record(phase, state, run)}.get
        assert source.now().run == expected, (phase, state, run)


def test_the_log_of_a_job_that_is_forgotten_is_not_taken_for_whole() -> None:
    jobs = SimpleNamespace(current=lambda _: None)
    with pytest.raises(Forgotten):
        RecordSource(cast("Jobs", jobs), KEY, "stdout", None).now()


@pytest.mark.parametrize(("phase", "state"), [(Phase.RUNNING, "COMPLETING"), (Phase.SUCCEEDED, "COMPLETED")])
def test_who_comes_late_believes_slurms_count(phase: Phase, state: str) -> None:
    jobs = SimpleNamespace(current=lambda _: record(phase, state, 2))
    assert RecordSource(cast("Jobs", jobs), KEY, "stdout", None).now().run == 2
