"""The end of the background work is told: nobody waits for it in vain, and nobody takes it for life."""

import asyncio
import base64
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from redbox.jobs.errors import NotAcceptable
from redbox.jobs.poll.poller import Poller
from redbox.jobs.record.listing import PageRequest, page_of
from redbox.jobs.record.marks import Marks
from redbox.jobs.service import JobService
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.retention import Retention
from tests.redbox.jobs.clock import SimulatedClock
from tests.redbox.jobs.fakes import SimulatedSlurm
from tests.redbox.jobs.harness import SECRET


@pytest.fixture
def jobs(tmp_path: Path) -> JobService:
    clock = SimulatedClock()
    return JobService(Journal(tmp_path), SimulatedSlurm(clock), Marks(SECRET, "hpc1"), clock=clock)


async def test_background_work_that_ends_by_a_fault_says_so(jobs: JobService) -> None:
    with patch.object(Retention, "run", side_effect=RuntimeError("a defect")):
        async with jobs, asyncio.timeout(60):
            fault = await jobs.ended()

    assert not jobs.alive
    assert isinstance(fault, ExceptionGroup)
    assert str(fault.exceptions[0]) == "a defect"


async def test_background_work_that_cannot_begin_raises_instead_of_waiting(jobs: JobService) -> None:
    with (
        patch.object(Poller, "run", Mock(side_effect=RuntimeError("a defect"))),
        pytest.raises(ExceptionGroup),
    ):
        async with asyncio.timeout(60), jobs:
            pytest.fail("it began")


async def test_an_orderly_end_is_no_fault(jobs: JobService) -> None:
    async with jobs:
        assert jobs.alive
    assert jobs.fault is None


@pytest.mark.parametrize("attempt", ["Infinity", "1e999", "NaN"])
def test_a_continue_token_with_an_odd_number_is_refused(attempt: str) -> None:
    token = base64.urlsafe_b64encode(f'["1.1", ["a", "b", "c", "d", "e", {attempt}]]'.encode()).decode()
    request = PageRequest(token=token)
    with pytest.raises(NotAcceptable, match="not made by red-box"):
        page_of(lambda _: [], request, "1.1", 10, lambda _: pytest.fail("there is none"), wanted=bool)
