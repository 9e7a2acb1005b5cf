"""What a reader of a job's files is answered while they cannot be read."""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from redbox.agents.errors import AgentError, AgentRefused, SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.core.clock import SystemClock
from redbox.core.domain import Caller, JobRef
from redbox.files.service import JobFileService
from redbox.jobs.errors import Forbidden, JobsBusy
from redbox.jobs.record.record import JobRecord
from redbox.jobs.service import JobService
from redbox_api.models import Phase
from tests.redbox.jobs.factories import NOW, RECORD

REF = JobRef(cast("Caller", None), "key")
REFUSED = AgentRefused("the agent of alice did not start: sudo: redbox is not allowed to execute it")
EIO = SystemCallFailed(errno.EIO, "Input/output error", "/home/alice/work")
STALE = SystemCallFailed(errno.ESTALE, "Stale file handle", "/home/alice/work")


class ManualClock(SystemClock):
    """It shows what a test says."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


@dataclass
class BrokenPool:
    """Stands for the pool and for the agent of one user."""

    error: AgentError

    async def agent(self, *_: object) -> BrokenPool:
        if isinstance(self.error, AgentRefused):
            raise self.error
        return self

    async def glob(self, *_: object, **__: object) -> None:
        raise self.error


@pytest.mark.parametrize(("error", "at_last"), [(REFUSED, AgentRefused), (EIO, Forbidden), (STALE, JobsBusy)])
async def test_an_error_that_may_stay_is_waited_for_until_some_time_after_the_jobs_end(
    error: AgentError, at_last: type[Exception]
) -> None:
    """Results are collected then: an outage of a minute loses none, and one without an end ends the wait."""
    record = replace(RECORD, working_directory="/home/alice/work", phase=Phase.RUNNING)

    async def locate(*_: object) -> JobRecord:
        return record

    clock = ManualClock(NOW + timedelta(days=1))
    pool = cast("AgentPool", BrokenPool(error))
    files = JobFileService(cast("JobService", SimpleNamespace(locate=locate)), pool, clock)
    with pytest.raises(JobsBusy):
        await files.find(REF, ["*"])
    record = replace(record, phase=Phase.SUCCEEDED, final_at=clock.at)
    clock.at += timedelta(minutes=14)
    with pytest.raises(JobsBusy):
        await files.find(REF, ["*"])
    clock.at += timedelta(minutes=2)
    with pytest.raises(at_last):
        await files.find(REF, ["*"])
