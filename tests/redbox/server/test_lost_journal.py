"""A server that would start on a new journal beside living jobs of a lost one ends, and says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from redbox.core.domain import JobKey, Owner
from redbox.core.observations import Observation
from redbox.core.workload_manager import QueueSnapshot, WorkloadManager, WorkloadManagerError
from redbox.jobs.errors import JournalLost
from redbox.jobs.record.marks import Marks
from redbox.jobs.store.journal import Journal
from redbox.server import cluster_identity as naming
from redbox.server.lost_journal import check_journal_not_lost
from redbox.settings import RedboxSettings
from redbox.slurm.text.states import JOB_STATES
from tests.redbox.jobs.harness import request

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
ALICE = 2001
MARKS = Marks(b"s" * 32, "hpc1")
MARK = MARKS.make(JobKey(Owner("kube", "physics", "default"), "key"), MARKS.body_id(request()), ALICE)


class Slurm:
    """Shows these jobs, once it answers."""

    states = JOB_STATES

    def __init__(self, *jobs: Observation, faults: int = 0) -> None:
        self.jobs = jobs
        self.faults = faults

    async def poll(self, **_: object) -> QueueSnapshot:
        if self.faults:
            self.faults -= 1
            raise WorkloadManagerError("Unable to contact slurm controller")
        return QueueSnapshot(NOON, 0.1, self.jobs, complete=True)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(tmp_path)
    yield journal
    journal.close()


def job(state: str = "RUNNING", mark: str = MARK, uid: int = ALICE) -> Observation:
    return Observation(job_id="17", uid=uid, mark=mark, state=state, live=True)


async def look(folder: Path, journal: Journal, slurm: Slurm) -> None:
    settings = RedboxSettings.model_validate(
        {
            "name": "hpc1",
            "listen": {"port": 0, "unix_socket": f"{folder}/socket"},
            "jobs": {"journal": folder},
        }
    )
    async with asyncio.timeout(60):
        await check_journal_not_lost(settings, journal, cast("WorkloadManager", slurm), MARKS)


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "SUSPENDED"])
async def test_a_living_job_with_our_mark_ends_the_start_and_names_the_cure(
    tmp_path: Path, journal: Journal, state: str
) -> None:
    with pytest.raises(JournalLost, match=r"\(17\).*redbox recover") as lost:
        await look(tmp_path, journal, Slurm(job(state)))
    assert str(tmp_path) in lost.value.detail


@pytest.mark.parametrize(
    "other",
    [job("FAILED"), job("CANCELLED"), job(uid=2002), job(mark=MARK[:-1] + "?"), job(mark="my own comment")],
    ids=["refused", "ended", "copied", "forged", "foreign"],
)
async def test_no_other_job_does(tmp_path: Path, journal: Journal, other: Observation) -> None:
    await look(tmp_path, journal, Slurm(other))


async def test_a_journal_is_new_only_once(tmp_path: Path, journal: Journal) -> None:
    """Later marks prove nothing: a user may give a new job the comment of an old one."""
    await look(tmp_path, journal, Slurm())
    journal.close()
    again = Journal(tmp_path)
    await look(tmp_path, again, Slurm(job()))
    again.close()


async def test_it_waits_for_slurm_s_answer(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "RETRY_S", 0.05)
    monkeypatch.setattr(naming, "FIRST_WAIT_S", 0.1)
    with pytest.raises(JournalLost):
        await look(tmp_path, journal, Slurm(job(), faults=4))
