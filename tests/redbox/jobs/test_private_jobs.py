"""Where Slurm shows each user only the own jobs, one who does not look harms nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redbox.jobs.errors import JobsBusy
from redbox.jobs.queue_snapshot import SnapshotIndex, match
from redbox_api.models import Job, Phase
from tests.redbox.jobs.harness import BOB, World, caller, request
from tests.redbox.jobs.submit_manners import NEVER_ARRIVES

HIS = caller(BOB, "chemistry")


@pytest.fixture
def both(world: World) -> World:
    """Alice has job 1, and bob job 2."""
    for who in (caller(), HIS):
        world.run(world.jobs.put(who, "job", 1, request()))
    world.advance(5)
    return world


def hers_and_his(world: World) -> tuple[Job, Job]:
    hers, his = (world.run(world.jobs.get(who, "job")) for who in (caller(), HIS))
    return hers, his


def end_both_unseen(world: World) -> None:
    for job_id in ("1", "2"):
        world.slurm.start(job_id)
        world.slurm.end(job_id, "FAILED", code=3)
        world.slurm.purge(job_id)


def test_one_users_silent_agent_makes_only_that_users_jobs_stale(both: World) -> None:
    both.slurm.hidden_uids = frozenset({BOB.uid})
    end_both_unseen(both)
    both.advance(3600)
    hers, his = hers_and_his(both)
    assert (hers.phase, hers.exit_code) == (Phase.FAILED, 3)
    assert (his.phase, his.stale_since is not None) == (Phase.PENDING, True)
    both.slurm.hidden_uids = frozenset()
    both.advance(60)
    assert [job.phase for job in hers_and_his(both)] == [Phase.FAILED, Phase.FAILED]


def test_a_living_job_is_not_stale_because_another_users_agent_is_silent(both: World) -> None:
    both.slurm.hidden_uids = frozenset({BOB.uid})
    both.advance(100)
    hers, his = hers_and_his(both)
    assert hers.stale_since is None
    assert his.stale_since is not None
    assert 90 < (both.clock.now() - his.stale_since).total_seconds() < 110
    both.slurm.hidden_uids = frozenset()
    both.advance(20)
    assert [job.stale_since for job in hers_and_his(both)] == [None, None]


@pytest.mark.parametrize("what", ["unfound_uids", "untold_uids"])
def test_who_cannot_be_asked_for_absent_jobs_holds_up_nobody_and_loses_none(both: World, what: str) -> None:
    setattr(both.slurm, what, frozenset({BOB.uid}))
    end_both_unseen(both)
    both.slurm.rows = [(at, row) for at, row in both.slurm.rows if row.uid != BOB.uid]
    both.advance(3600)
    hers, his = hers_and_his(both)
    assert (hers.phase, hers.exit_code) == (Phase.FAILED, 3)
    assert his.phase is Phase.PENDING
    setattr(both.slurm, what, frozenset())
    both.advance(700)
    assert hers_and_his(both)[1].phase is Phase.LOST


def test_an_unanswered_submit_is_settled_while_another_users_agent_is_silent(both: World) -> None:
    both.slurm.hidden_uids = frozenset({BOB.uid})
    both.slurm.manners.append(NEVER_ARRIVES)
    with pytest.raises(JobsBusy):
        both.run(both.jobs.put(caller(), "doubted", 1, request()))
    both.advance(80)
    job, _ = both.run(both.jobs.put(caller(), "doubted", 1, request()))
    assert job.job_id == "3"


def test_an_unanswered_submit_is_not_settled_while_its_own_users_agent_is_silent(both: World) -> None:
    both.slurm.hidden_uids = frozenset({BOB.uid})
    both.slurm.manners.append(NEVER_ARRIVES)
    for _ in range(3):
        with pytest.raises(JobsBusy):
            both.run(both.jobs.put(HIS, "doubted", 1, request()))
        both.advance(100)


def test_a_job_whose_comment_was_changed_is_known_also_where_another_claims_its_id(both: World) -> None:
    record = next(record for record in both.jobs if record.user != BOB)
    known = both.jobs.current(record.key)
    assert known is not None
    changed = replace(both.slurm.jobs["1"], mark="", comment="mine")
    forged = replace(changed, uid=BOB.uid)
    look = SnapshotIndex(both.clock.now(), complete=True, by_id={"1": [forged, changed]})
    assert match(known, look).job == changed
