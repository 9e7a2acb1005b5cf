"""An unanswered submit and its held retry: whatever arrives, in whatever order, one of them is the job."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redbox.core.domain import JobKey, Owner, UnixUser
from redbox.core.observations import Observation
from redbox.jobs.errors import JobsBusy
from redbox.jobs.record.record import JobRecord, Stage
from redbox.jobs.submit.duplicates import DuplicateVerdict, resolve_duplicates
from redbox.slurm.text.states import JOB_STATES
from redbox_api.models import Phase
from tests.redbox.jobs.fakes import ENDED
from tests.redbox.jobs.harness import World, caller, request
from tests.redbox.jobs.submit_manners import HANGS, NEVER_ARRIVES, Manner, late

KEY = "3f2b7c1e-0000-4000-8000-000000000001"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
RECORD = JobRecord(
    key=JobKey(Owner("kube", "ns", "default", "u"), "key"),
    user=UnixUser("alice", 2001),
    mark="rb1.x",
    body_id="b",
    created_at=NOW,
    last_submit_at=NOW,
    stage=Stage.BOUND,
    job_id="7",
    held_retry=True,
)


def job(job_id: str, state: str = "PENDING", reason: str = "Priority", **facts: Any) -> Observation:
    known = {"uid": 2001, "mark": "rb1.x", "live": True, "submitted_at": NOW, **facts}
    return Observation(job_id=job_id, state=state, reason=reason, **known)


HELD = job("7", reason="JobHeldUser")
OTHER_WAITS = job("8")
OTHER_HELD = job("8", reason="JobHeldUser")
OTHER_RUNS = job("8", "RUNNING", nodes="n1")
OTHER_RAN = job("8", "COMPLETED", nodes="n1", live=False)
OTHER_CANCELLED = job("8", "CANCELLED", live=False)
OLD_ROW = job("8", live=False, submitted_at=NOW)
NEW_ROW = job("8", live=False, submitted_at=NOW + timedelta(minutes=9))


@pytest.mark.parametrize(
    ("own", "others", "verdict"),
    [
        (HELD, [], DuplicateVerdict()),
        (HELD, [OTHER_WAITS], DuplicateVerdict(winner=OTHER_WAITS)),
        (HELD, [OTHER_RUNS], DuplicateVerdict(winner=OTHER_RUNS)),
        (HELD, [OTHER_RAN], DuplicateVerdict(winner=OTHER_RAN)),
        (HELD, [OTHER_HELD], DuplicateVerdict(losers=(OTHER_HELD,))),
        (HELD, [OTHER_HELD, job("9")], DuplicateVerdict(winner=job("9"))),
        (HELD, [OTHER_CANCELLED], DuplicateVerdict()),
        (HELD, [OLD_ROW], DuplicateVerdict()),
        (HELD, [NEW_ROW], DuplicateVerdict(unclear=True)),
        (HELD, [OTHER_WAITS, OLD_ROW], DuplicateVerdict(winner=OTHER_WAITS)),
        (job("7"), [OTHER_HELD], DuplicateVerdict(losers=(OTHER_HELD,))),
        (job("7"), [OTHER_RUNS], DuplicateVerdict(winner=OTHER_RUNS)),
        (job("7", "RUNNING"), [OTHER_HELD], DuplicateVerdict(losers=(OTHER_HELD,))),
        (job("7", "RUNNING"), [OTHER_RUNS], DuplicateVerdict()),
        (None, [OTHER_HELD], DuplicateVerdict(winner=OTHER_HELD)),
        (HELD, [replace(OTHER_RUNS, uid=2002)], DuplicateVerdict()),
    ],
)
def test_what_runs_or_ran_is_the_job_and_of_those_that_wait_the_held_one_steps_back(
    own: Observation | None, others: list[Observation], verdict: DuplicateVerdict
) -> None:
    assert resolve_duplicates(RECORD, own, others, NOW + timedelta(minutes=10), JOB_STATES) == verdict


def retried(world: World, first: Manner, retry: Manner) -> None:
    """A submit that nobody answered, proved absent, and its retry, begun."""
    world.slurm.manners.append(first)
    with pytest.raises(JobsBusy):
        world.run(world.jobs.put(caller(), KEY, 1, request()))
    world.advance(80)
    assert [record.stage for record in world.jobs] == [Stage.UNCONFIRMED]
    world.slurm.manners.append(retry)
    world.begin(world.jobs.put(caller(), KEY, 1, request())).add_done_callback(lambda put: put.exception())
    world.settle()


def living(world: World) -> list[Observation]:
    return [job for job in world.slurm.jobs.values() if job.state not in ENDED]


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("seen_for_s", [0.0, 1.0, 20.0])
@pytest.mark.parametrize("first", [NEVER_ARRIVES, late(85.0), late(100.0), late(400.0)])
def test_a_retry_that_hangs_ends_as_one_job_that_is_not_held_or_none_if_deleted(
    world: World, first: Manner, seen_for_s: float, *, restarted: bool, deleted: bool
) -> None:
    retried(world, first, HANGS)
    world.advance(seen_for_s)
    if restarted:
        world.restart()
    if deleted:
        world.run(world.jobs.delete(caller(), KEY))
    world.advance(2000)
    jobs = living(world)
    if deleted:
        assert jobs == []
    else:
        assert [job.reason for job in jobs] == ["Priority"]
        assert world.run(world.jobs.get(caller(), KEY)).job_id == jobs[0].job_id


@pytest.mark.parametrize("starts", [False, True])
@pytest.mark.parametrize(("first", "retry"), [(late(120.0), HANGS), (late(100.0), late(40.0, ends_s=45.0))])
def test_of_two_that_arrived_while_the_server_was_away_the_one_that_is_not_held_stays(
    world: World, first: Manner, retry: Manner, *, starts: bool
) -> None:
    retried(world, first, retry)
    world.crash()
    for elapsed in (101, 135):
        world.clock.advance_to(elapsed)
        world.slurm.tick()
    free = next(job.job_id for job in world.slurm.jobs.values() if job.reason != "JobHeldUser")
    if starts:
        world.slurm.start(free)
    world.start()
    world.advance(300)
    assert [job.job_id for job in living(world)] == [free]
    assert world.run(world.jobs.get(caller(), KEY)).job_id == free


@pytest.mark.parametrize("arrives_s", [30.0, 75.0, 90.0, 200.0, 299.0, 1e9])
def test_a_late_submit_never_runs_beside_its_retry_though_slurm_starts_what_it_has_at_once(
    world: World, arrives_s: float
) -> None:
    world.slurm.manners.append(late(arrives_s))
    started: set[str] = set()
    for _ in range(500):
        asked = world.begin(world.jobs.put(caller(), KEY, 1, request()))
        asked.add_done_callback(lambda put: put.exception())
        world.advance(1)
        ready = [one.job_id for one in living(world) if one.reason == "Priority"]
        for job_id in set(ready) - started:
            world.slurm.start(job_id)
            started.add(job_id)
    assert len(started) == 1
    assert world.run(world.jobs.get(caller(), KEY)).job_id in started


def test_a_first_submit_that_arrives_when_its_retry_has_long_ended_is_cancelled(world: World) -> None:
    retried(world, late(1200.0), HANGS)
    world.restart()
    world.advance(20)
    world.slurm.start("1")
    world.slurm.end("1")
    world.advance(1500)
    assert world.run(world.jobs.get(caller(), KEY)).phase is Phase.SUCCEEDED
    assert living(world) == []
