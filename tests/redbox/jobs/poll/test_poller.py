from __future__ import annotations

from dataclasses import replace

import pytest

from redbox.core.token_buckets import Rate, TokenBucket
from redbox.core.workload_manager import JobAction
from redbox.jobs.poll.schedule import interval, soon
from redbox.jobs.record.record import lineage
from redbox.jobs.settings import JobsSettings
from redbox_api.models import Job, Phase
from tests.redbox.jobs.harness import World, caller, request

KEY = "3f2b7c1e-0000-4000-8000-000000000001"


def submitted(world: World, key: str = KEY) -> Job:
    job, _ = world.run(world.jobs.put(caller(), key, 1, request()))
    world.advance(5)
    return job


def current(world: World, key: str = KEY) -> Job:
    return world.run(world.jobs.get(caller(), key))


def test_a_job_is_followed_from_pending_to_its_end(world: World) -> None:
    submitted(world)
    assert current(world).phase is Phase.PENDING
    world.slurm.start("1")
    world.advance(3)
    assert (current(world).phase, current(world).nodes) == (Phase.RUNNING, ["n1"])
    world.slurm.end("1", "FAILED", code=3)
    world.advance(3)
    job = current(world)
    assert (job.phase, job.exit_code, job.message) == (Phase.FAILED, 3, "It exited with code 3.")


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("BadConstraints", "no node has all that it asks for"),
        ("InvalidAccount", "its account physics is not valid for this user"),
        ("FrontEndDown", "it says FrontEndDown"),
        ("", "it does not say why"),
    ],
)
def test_a_job_that_slurm_fails_before_it_starts_says_why(world: World, reason: str, why: str) -> None:
    submitted(world)
    failed = replace(world.slurm.jobs["1"], state="FAILED", reason=reason, exit_code=None, account="physics")
    world.slurm.put(failed)
    world.advance(3)
    job = current(world)
    assert (job.phase, job.exit_code, job.signal) == (Phase.FAILED, None, None)
    assert job.message == f"Slurm failed it before it could start: {why}."


def test_a_live_job_is_looked_for_every_second_or_so_and_nothing_is_asked_when_nothing_is_live(
    world: World,
) -> None:
    world.slurm.can_glance = False
    world.advance(600)
    assert world.slurm.polls == []
    submitted(world)
    before = len(world.slurm.polls)
    world.advance(60)
    assert 45 <= len(world.slurm.polls) - before <= 55
    world.slurm.end("1")
    world.advance(400)
    assert world.slurm.jobs == {}
    before = len(world.slurm.polls)
    world.advance(600)
    assert len(world.slurm.polls) == before


def test_while_nothing_moves_glances_take_the_place_of_looks(world: World) -> None:
    submitted(world)
    polls, probes = len(world.slurm.polls), len(world.slurm.probes)
    world.advance(60)
    polls, probes = len(world.slurm.polls) - polls, len(world.slurm.probes) - probes
    assert polls <= 7
    assert probes >= 35
    assert 2 * polls + probes <= 60, "a look is two calls of slurmctld"


def test_while_one_change_follows_another_no_glance_stands_before_a_look(world: World) -> None:
    for number in range(20):
        submitted(world, f"key-{number}")
    world.advance(60)
    before = len(world.slurm.probes)
    for job_id in range(1, 21):
        world.slurm.start(str(job_id))
        world.advance(2)
    assert len(world.slurm.probes) - before <= 2


def test_a_glance_that_shows_another_state_is_followed_by_a_look_at_once(world: World) -> None:
    submitted(world)
    for change, phase in ((world.slurm.start, Phase.RUNNING), (world.slurm.end, Phase.SUCCEEDED)):
        world.advance(60)
        change("1")
        world.advance(2)
        assert current(world).phase is phase


def test_what_no_glance_shows_is_seen_by_a_look_all_the_same(world: World) -> None:
    submitted(world)
    world.advance(60)
    world.slurm.put(replace(world.slurm.jobs["1"], reason="AssocGrpCpuLimit"))
    world.advance(world.settings.longest_interval_s + 2)
    assert current(world).reason == "AssocGrpCpuLimit"


def test_a_record_that_was_busy_during_a_look_is_looked_at_again(world: World) -> None:
    """Its state has changed, and no further probe will say so."""
    submitted(world)
    world.advance(60)
    store = world.jobs._store
    (record,) = store.index.watched()
    line = lineage(record.key.owner, record.key.key)
    assert store._turns.take_free(line)
    world.slurm.start("1")
    world.advance(4)
    assert current(world).phase is Phase.PENDING
    store._give_back({line})
    world.advance(2)
    assert current(world).phase is Phase.RUNNING


def test_a_storm_of_submits_asks_for_no_more_than_the_bucket_gives(world: World) -> None:
    began = world.clock.elapsed
    for number in range(120):
        world.run(world.jobs.put(caller(), f"key-{number}", 1, request()))
        world.advance(0.5)
    minutes = (world.clock.elapsed - began) / 60
    assert len(world.slurm.polls) <= 50 * minutes + world.settings.read_burst


def test_when_slurm_does_not_answer_the_last_truth_stays_and_says_since_when(world: World) -> None:
    submitted(world)
    world.slurm.start("1")
    world.advance(5)
    world.slurm.down = True
    world.advance(120)
    job = current(world)
    assert job.phase is Phase.RUNNING
    assert job.stale_since is not None
    assert 100 < (world.clock.now() - job.stale_since).total_seconds() < 130
    world.slurm.down = False
    world.advance(15)
    assert current(world).stale_since is None


def test_what_was_last_seen_by_the_server_before_is_said_to_be_that_old(world: World) -> None:
    submitted(world)
    world.advance(600)
    world.crash()
    world.slurm.down = True
    world.clock.advance_to(world.clock.elapsed + 3600)
    world.start()
    world.advance(120)
    job = current(world)
    assert job.stale_since is not None
    assert 3700 < (world.clock.now() - job.stale_since).total_seconds() < 3800
    world.slurm.down = False
    world.advance(15)
    assert current(world).stale_since is None


def test_a_poll_that_hangs_is_given_up_and_the_next_one_works(world: World) -> None:
    submitted(world)
    world.slurm.poll_hangs = True
    world.advance(100)
    world.slurm.poll_hangs = False
    world.slurm.start("1")
    world.advance(70)
    assert current(world).phase is Phase.RUNNING


def test_absence_in_a_look_that_may_hide_jobs_means_nothing(world: World) -> None:
    submitted(world)
    world.slurm.hidden_uids = frozenset({2001})
    world.advance(3600)
    job = current(world)
    assert job.phase is Phase.PENDING
    assert job.stale_since is not None


def test_a_job_that_the_queue_has_forgotten_gets_its_end_from_the_accounting(world: World) -> None:
    submitted(world)
    world.slurm.down = True
    world.advance(30)
    world.slurm.start("1")
    world.slurm.end("1", "TIMEOUT", code=0)
    world.slurm.purge("1")
    world.slurm.down = False
    world.advance(15)
    job = current(world)
    assert (job.phase, job.state) == (Phase.FAILED, "TIMEOUT")
    assert "time limit" in (job.message or "")


def test_an_accounting_row_that_arrives_late_is_waited_for(world: World) -> None:
    submitted(world)
    world.slurm.rows_late_s = 400.0
    world.slurm.end("1", "FAILED", code=7)
    world.slurm.purge("1")
    world.advance(60)
    job = current(world)
    assert (job.phase, job.stale_since is not None) == (Phase.PENDING, True)
    world.advance(460)  # it is asked for ever more rarely, at least once a minute
    assert (current(world).phase, current(world).exit_code) == (Phase.FAILED, 7)


def test_a_job_that_nobody_knows_is_lost_after_ten_minutes_and_not_before(world: World) -> None:
    submitted(world)
    world.slurm.forget("1", rows_too=True)
    world.advance(590)
    assert current(world).phase is Phase.PENDING
    world.advance(90)
    job = current(world)
    assert job.phase is Phase.LOST
    assert "Its outcome is unknown" in (job.message or "")


def test_without_accounting_two_looks_that_miss_a_job_lose_it(world: World) -> None:
    world.slurm.accounting = False
    submitted(world)
    world.slurm.forget("1")
    world.advance(10)
    job = current(world)
    assert job.phase is Phase.LOST
    assert "keeps no accounting" in (job.message or "")


def test_an_accounting_that_cannot_be_asked_makes_nothing_lost(world: World) -> None:
    submitted(world)
    world.slurm.accounting_down = True
    world.slurm.forget("1", rows_too=True)
    world.advance(3600)
    assert current(world).phase is Phase.PENDING


def test_a_job_whose_id_was_given_to_another_is_lost_and_the_stranger_is_not_touched(world: World) -> None:
    submitted(world)
    world.slurm.forget("1", rows_too=True)
    stranger = world.slurm.add_foreign(2002, job_id="1", state="RUNNING")
    world.run(world.jobs.delete(caller(), KEY))
    world.advance(700)
    job = current(world)
    assert job.phase is Phase.LOST
    assert "given the job id 1 to another job, which was not touched" in (job.message or "")
    assert world.slurm.jobs["1"] == stranger
    assert world.slurm.acts == []


def test_a_job_of_the_same_user_under_the_same_id_with_another_mark_is_a_stranger(world: World) -> None:
    submitted(world)
    world.slurm.forget("1")
    world.advance(1)
    second = submitted(world, "second")
    assert second.job_id == "1"
    world.advance(700)
    assert current(world).phase is Phase.LOST
    assert current(world, "second").phase is Phase.PENDING
    world.run(world.jobs.delete(caller(), KEY))
    world.advance(30)
    assert world.slurm.jobs["1"].state == "PENDING"


def test_another_job_of_ours_that_got_the_id_in_the_same_second_is_a_stranger(world: World) -> None:
    submitted(world)
    world.advance(5)
    first = world.slurm.jobs["1"]
    world.slurm.forget("1", rows_too=True)
    submitted(world, "second")
    world.slurm.jobs["1"] = replace(world.slurm.jobs["1"], submitted_at=first.submitted_at)
    world.slurm.end("1", "COMPLETED")
    world.advance(700)
    assert current(world).phase is Phase.LOST
    assert current(world, "second").phase is Phase.SUCCEEDED


def test_a_comment_that_its_user_changed_is_a_warning_and_the_job_is_still_followed(world: World) -> None:
    submitted(world)
    world.slurm.jobs["1"] = replace(world.slurm.jobs["1"], mark="mine", state="RUNNING")
    world.advance(3)
    job = current(world)
    assert job.phase is Phase.RUNNING
    assert any("comment was changed" in warning for warning in job.warnings)


def test_a_node_failure_is_final_only_when_slurm_does_not_requeue(world: World) -> None:
    submitted(world)
    world.slurm.start("1")
    world.slurm.end("1", "NODE_FAIL")
    world.advance(20)
    assert current(world).phase is not Phase.FAILED
    world.advance(20)
    assert (current(world).phase, current(world).run) == (Phase.FAILED, 1)


def test_a_requeued_job_is_the_next_run_of_the_same_job(world: World) -> None:
    submitted(world)
    world.slurm.start("1")
    world.slurm.end("1", "NODE_FAIL")
    world.advance(5)
    world.slurm.requeue("1")
    world.advance(5)
    assert (current(world).phase, current(world).run) == (Phase.PENDING, 2)


def test_a_final_job_that_lives_again_is_followed_and_one_being_deleted_is_cancelled_again(
    world: World,
) -> None:
    submitted(world)
    world.run(world.jobs.delete(caller(), KEY))
    world.advance(5)
    assert current(world).phase is Phase.CANCELLED
    world.slurm.requeue("1")
    world.advance(12)
    assert [act for act, _ in world.slurm.acts].count(JobAction.CANCEL) == 2
    world.advance(12)
    assert (current(world).phase, current(world).run) == (Phase.CANCELLED, 2)


def test_a_cancel_that_slurm_did_not_hear_is_sent_again(world: World) -> None:
    submitted(world)
    world.slurm.down = True
    world.run(world.jobs.delete(caller(), KEY))
    world.advance(60)
    world.slurm.down = False
    world.advance(120)
    assert world.slurm.jobs["1"].state == "CANCELLED"


def test_a_cancel_that_slurm_refuses_is_said_in_its_words(world: World) -> None:
    submitted(world)
    world.slurm.refuse_acts = "Kill job error on job id 1: Access/permission denied"
    world.run(world.jobs.delete(caller(), KEY))
    world.advance(5)
    assert any("Access/permission denied" in warning for warning in current(world).warnings)


@pytest.mark.parametrize(
    ("took_s", "accounting", "faults", "expected"),
    [
        (0.01, True, 0, 1.2),
        (0.1, True, 0, 2.0),
        (0.4, True, 0, 8.0),
        (3.0, True, 0, 10.0),
        (0.01, False, 0, 1.2),
        (3.0, False, 0, 4.0),
        (0.01, True, 1, 2.4),
        (0.01, True, 9, 10.0),
    ],
)
def test_the_interval_follows_what_a_call_costs(
    took_s: float, *, accounting: bool, faults: int, expected: float
) -> None:
    settings = JobsSettings(min_job_age_s=12.0)
    assert interval(settings, took_s, accounting=accounting, faults=faults) == pytest.approx(expected)


def test_a_wish_is_answered_sooner_than_the_interval_but_not_at_once() -> None:
    settings = JobsSettings()
    assert 0 < soon(settings, 0.01) < settings.shortest_interval_s
    assert soon(settings, 1.0) == 5.0


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(Rate(per_second=0.5, burst=2))
    assert [bucket.wait(0.0) for _ in range(3)] == [0.0, 0.0, 2.0]
    assert bucket.wait(2.0) == 0.0
    assert bucket.wait(2.0) == 2.0


def test_reserved_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    bucket = TokenBucket(Rate(per_second=0.5, burst=1))
    assert [bucket.reserve(0.0) for _ in range(3)] == [0.0, 2.0, 4.0]
    assert bucket.reserve(3.0) == 3.0
