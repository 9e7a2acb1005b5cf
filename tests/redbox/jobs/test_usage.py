"""What jobs use and used: whose is told to whom, and how often Slurm is asked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from redbox.core.domain import Caller, UnixUser
from redbox.core.observations import TaskObservation
from redbox.core.workload_manager import JobHandle, PastUsage, StepUsage
from redbox.jobs import usage
from redbox.jobs.errors import Forbidden, JobsBusy
from redbox.jobs.usage import UsageOfJobs
from redbox_api.models import EndedUsage
from tests.redbox.jobs.harness import BOB, World, caller, operator, request


def running(world: World, key: str, who: Caller | None = None) -> str:
    """A job of this key that runs; its id."""
    job, _ = world.run(world.jobs.put(who or caller(), key, 1, request()))
    assert job.job_id
    world.slurm.start(job.job_id)
    world.advance(11)
    return job.job_id


def use(world: World, job_id: str, cpu_s: float, memory: int, step: str = "batch") -> None:
    world.slurm.used[f"{job_id}.{step}"] = StepUsage(job_id, step, cpu_s, memory)


@pytest.fixture
def used(world: World) -> UsageOfJobs:
    return world.run(UsageOfJobs(world.jobs, world.slurm, world.clock).__aenter__())


def told(world: World, used: UsageOfJobs, who: Caller | None = None) -> dict[str, tuple[float, int]]:
    answer = world.run(used.of_caller(who or caller()))
    return {item.key: (item.cpu_seconds, item.memory_bytes) for item in answer.items}


def test_a_caller_is_told_of_own_jobs_only(world: World, used: UsageOfJobs) -> None:
    mine, theirs = running(world, "k1"), running(world, "k2", caller(BOB, "biology", "uid-2"))
    use(world, mine, 3, 100)
    use(world, theirs, 5, 200)
    assert told(world, used) == {"k1": (3.0, 100)}
    assert told(world, used, caller(BOB, "biology", "uid-2")) == {"k2": (5.0, 200)}


def test_two_accounts_of_one_user_are_apart(world: World, used: UsageOfJobs) -> None:
    use(world, running(world, "k1"), 3, 100)
    assert told(world, used, caller(namespace="other")) == {}


def test_steps_are_added_up_and_the_time_of_those_that_ended_stays(world: World, used: UsageOfJobs) -> None:
    job_id = running(world, "k1")
    use(world, job_id, 3, 100)
    use(world, job_id, 4, 50, step="0")
    assert told(world, used) == {"k1": (7.0, 150)}
    del world.slurm.used[f"{job_id}.0"]
    world.advance(usage.FRESH_S + 1)
    assert told(world, used) == {"k1": (7.0, 100)}


def test_tasks_of_an_array_are_one_job(world: World, used: UsageOfJobs) -> None:
    job_id = running(world, "k1")
    tasks = tuple(TaskObservation(index, f"{job_id}_{index}", "RUNNING") for index in (1, 2))
    world.slurm.jobs[job_id] = replace(world.slurm.jobs[job_id], tasks=tasks, array_size=2)
    world.advance(11)
    use(world, f"{job_id}_1", 3, 100)
    use(world, f"{job_id}_2", 4, 50)
    assert told(world, used) == {"k1": (7.0, 150)}


def test_slurm_is_asked_once_whoever_asks_how_often(world: World, used: UsageOfJobs) -> None:
    use(world, running(world, "k1"), 3, 100)
    use(world, running(world, "k2"), 4, 100)
    for _ in range(10):
        told(world, used)
    assert [len(ids) for ids in world.slurm.usage_asked] == [2]


def test_nobody_is_asked_where_nothing_runs(world: World, used: UsageOfJobs) -> None:
    assert told(world, used) == {}
    assert world.slurm.usage_asked == []


def test_of_many_jobs_those_measured_longest_ago_come_next(
    world: World, used: UsageOfJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MOST_JOBS", 2)
    for number in range(4):
        use(world, running(world, f"k{number}"), 1, 1)
    assert len(told(world, used)) == 2
    world.advance(usage.FRESH_S + 1)
    assert len(told(world, used)) == 4
    first, second = world.slurm.usage_asked
    assert not set(first) & set(second)


def test_what_is_not_measured_any_more_keeps_its_numbers_and_their_time(
    world: World, used: UsageOfJobs
) -> None:
    use(world, running(world, "k1"), 3, 100)
    before = world.run(used.of_caller(caller())).items
    world.slurm.used.clear()
    world.advance(usage.FRESH_S + 1)
    assert world.run(used.of_caller(caller())).items == before


def test_a_measure_that_takes_long_is_there_for_who_asks_again(
    world: World, used: UsageOfJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(world, running(world, "k1"), 3, 100)
    answer = world.slurm.usage

    async def slowly(user: UnixUser, jobs: Collection[JobHandle]) -> tuple[StepUsage, ...]:
        await world.clock.sleep(usage.WAIT_S + 1)
        return await answer(user, jobs)

    monkeypatch.setattr(world.slurm, "usage", slowly)
    asked = world.begin(used.of_caller(caller()))
    world.advance(usage.WAIT_S)
    assert asked.result().items == []
    world.advance(2)
    assert told(world, used) == {"k1": (3.0, 100)}
    assert len(world.slurm.usage_asked) == 1


def test_a_user_of_many_owners_whose_agent_hangs_leaves_calls_to_others(
    world: World, used: UsageOfJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = [caller(namespace=f"physics-{number}") for number in range(usage.CALLS_AT_ONCE)]
    for number, who in enumerate(owners):
        running(world, f"k{number}", who)
        ended(world, f"e{number}", who)
    bob = caller(BOB, "biology", "uid-2")
    use(world, running(world, "theirs", bob), 5, 200)
    ended(world, "past", bob)
    answer, accounting = world.slurm.usage, world.slurm.past_usage

    async def hang_for_alice(user: UnixUser, jobs: Collection[JobHandle]) -> tuple[StepUsage, ...]:
        if user != BOB:
            await world.clock.sleep(1000)
        return await answer(user, jobs)

    async def read_nothing_for_alice(
        user: UnixUser, job_ids: Collection[str]
    ) -> tuple[PastUsage, ...] | None:
        if user != BOB:
            await world.clock.sleep(1000)
        return await accounting(user, job_ids)

    monkeypatch.setattr(world.slurm, "usage", hang_for_alice)
    monkeypatch.setattr(world.slurm, "past_usage", read_nothing_for_alice)
    measured = [world.begin(used.of_caller(who)) for who in owners]
    read = [world.begin(used.of_ended(who, [(f"e{number}", 1)])) for number, who in enumerate(owners)]
    assert told(world, used, bob) == {"theirs": (5.0, 200)}
    assert past(world, used, "past", who=bob).keys() == {"past"}
    assert not any(task.done() for task in (*measured, *read))


def test_a_slurm_that_is_away_is_said(world: World, used: UsageOfJobs) -> None:
    running(world, "k1")
    world.slurm.down = True
    with pytest.raises(JobsBusy):
        told(world, used)


def test_an_operator_has_no_jobs_to_be_told_of(world: World, used: UsageOfJobs) -> None:
    with pytest.raises(Forbidden):
        told(world, used, operator())


def ended(world: World, key: str, who: Caller | None = None, cpu_s: float = 30.0) -> PastUsage:
    """A job of this key that has ended, and what the accounting has of it."""
    job_id = running(world, key, who)
    world.slurm.end(job_id)
    world.advance(60)
    mark = next(job.mark for job in world.slurm.ever if job.job_id == job_id)
    used = PastUsage(job_id, mark, None, 2, 60, 120, cpu_s, 1 << 20, 4 << 20, 600)
    world.slurm.past.append(used)
    return used


def past(world: World, used: UsageOfJobs, *keys: str, who: Caller | None = None) -> dict[str, EndedUsage]:
    answer = world.run(used.of_ended(who or caller(), [(key, 1) for key in keys]))
    assert answer.accounting
    return {item.key: item for item in answer.items}


def test_ended_jobs_are_read_by_one_call_as_their_user_and_never_again(
    world: World, used: UsageOfJobs
) -> None:
    ids = [ended(world, key).job_id for key in ("k1", "k2")]
    past(world, used, "k1", "k2")
    world.advance(usage.FRESH_S + 1)
    found = past(world, used, "k1", "k2")
    assert world.slurm.past_asked == [("alice", ids)]
    assert (found["k1"].cpu_seconds, found["k1"].allocated_cpu_seconds) == (30.0, 120)
    assert (found["k2"].memory_bytes, found["k2"].allocated_memory_bytes) == (1 << 20, 4 << 20)
    assert (found["k2"].elapsed_seconds, found["k2"].time_limit_seconds) == (60, 600)


def test_neither_jobs_of_others_nor_those_that_run_are_read(world: World, used: UsageOfJobs) -> None:
    ended(world, "theirs", caller(BOB, "biology", "uid-2"))
    running(world, "still")
    assert past(world, used, "theirs", "still", "nothing") == {}
    assert world.slurm.past_asked == []


def test_an_id_that_was_given_again_is_told_apart_by_its_mark(world: World, used: UsageOfJobs) -> None:
    mine = ended(world, "k1")
    world.slurm.past.insert(0, replace(mine, mark="another", cpu_s=99.0))
    assert past(world, used, "k1")["k1"].cpu_seconds == 30.0


def test_where_the_accounting_has_no_marks_the_time_of_the_submit_tells_them_apart(
    world: World, used: UsageOfJobs
) -> None:
    mine = ended(world, "k1")
    submitted_at = world.slurm.ever[0].submitted_at
    assert submitted_at is not None
    other = replace(mine, mark="", submitted_at=submitted_at.replace(year=2001), cpu_s=99.0)
    world.slurm.past[:] = [other, replace(mine, mark="", submitted_at=submitted_at)]
    assert past(world, used, "k1")["k1"].cpu_seconds == 30.0


def test_what_the_accounting_does_not_have_yet_is_read_again_after_a_while(
    world: World, used: UsageOfJobs
) -> None:
    late = ended(world, "k1")
    world.slurm.past.clear()
    assert past(world, used, "k1") == past(world, used, "k1") == {}
    assert len(world.slurm.past_asked) == 1
    world.slurm.past.append(late)
    world.advance(usage.FRESH_S + 1)
    assert past(world, used, "k1").keys() == {"k1"}


def test_no_accounting_is_said(world: World, used: UsageOfJobs) -> None:
    ended(world, "k1")
    world.slurm.accounting = False
    answer = world.run(used.of_ended(caller(), [("k1", 1)]))
    assert (answer.items, answer.accounting) == ([], False)


def test_an_accounting_that_is_down_is_said_and_asked_again(world: World, used: UsageOfJobs) -> None:
    ended(world, "k1")
    world.slurm.accounting_down = True
    with pytest.raises(JobsBusy, match=r"accounting does not answer: .*Connection refused"):
        past(world, used, "k1")
    world.slurm.accounting_down = False
    assert past(world, used, "k1").keys() == {"k1"}


def test_a_slow_accounting_is_asked_once_and_its_answer_kept(world: World, used: UsageOfJobs) -> None:
    ended(world, "k1")
    world.slurm.past_s = usage.WAIT_S + 1
    asked = [world.begin(used.of_ended(caller(), [("k1", 1)])) for _ in range(2)]
    world.advance(usage.WAIT_S)
    for answer in asked:
        with pytest.raises(JobsBusy, match="takes long"):
            answer.result()
    world.advance(2)
    assert past(world, used, "k1").keys() == {"k1"}
    assert len(world.slurm.past_asked) == 1


def test_an_operator_has_no_ended_jobs(world: World, used: UsageOfJobs) -> None:
    with pytest.raises(Forbidden):
        past(world, used, "k1", who=operator())
