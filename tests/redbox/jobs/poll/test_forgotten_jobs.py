"""Jobs that a restarted slurmctld does not show: known within a minute, and what is said of a start."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from redbox.core.domain import JobKey, UnixUser
from redbox.core.observations import ObservedStatus, TaskObservation
from redbox.jobs.record.forgotten import output_of
from redbox.jobs.record.record import JobRecord
from redbox_api.models import Job, Phase
from tests.redbox.jobs.harness import World, caller, request

KEY = "one"
OUTPUT = "/home/alice/slurm-1.out"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def submitted(world: World, key: str = KEY, seconds: float = 5.0, **facts: Any) -> Job:
    job, _ = world.run(world.jobs.put(caller(), key, 1, request(**facts)))
    world.advance(seconds)
    return job


def current(world: World, key: str = KEY) -> Job:
    return world.run(world.jobs.get(caller(), key))


def forgotten_within(world: World, seconds: float = 60.0, key: str = KEY) -> Job:
    world.advance(seconds)
    job = current(world, key)
    assert (job.phase, job.reason) == (Phase.LOST, "ForgottenBySlurm"), job
    return job


@pytest.mark.parametrize("accounting", [True, False])
@pytest.mark.parametrize("seen_by_a_poll", [True, False])
def test_a_job_without_a_sign_of_a_start_is_forgotten_within_a_minute(
    world: World, *, accounting: bool, seen_by_a_poll: bool
) -> None:
    world.slurm.accounting = accounting
    submitted(world, seconds=5.0 if seen_by_a_poll else 0.0)
    world.slurm.restart("1")
    job = forgotten_within(world)
    assert job.no_sign_of_start
    assert "Nothing shows that it started" in (job.message or "")
    assert OUTPUT in (job.message or "")


def test_until_then_it_has_no_reason_of_a_queue_and_is_stale(world: World) -> None:
    submitted(world)
    assert current(world).reason == "Priority"
    world.slurm.restart("1")
    world.advance(10)
    job = current(world)
    assert (job.phase, job.reason, job.stale_since is None) == (Phase.PENDING, None, False)
    assert "does not show job 1 at present" in (job.message or "")


def test_without_a_restart_the_ten_minutes_stay(world: World) -> None:
    submitted(world)
    world.slurm.forget("1", rows_too=True)
    world.advance(500)
    assert current(world).phase is Phase.PENDING
    world.advance(300)
    job = current(world)
    assert (job.phase, job.reason, job.no_sign_of_start) == (Phase.LOST, None, False)


def test_one_that_was_saved_long_before_is_not_called_unsaved(world: World) -> None:
    """Its state may have been missing at the start: the job may come back, and run beside a next attempt."""
    submitted(world, seconds=1800)
    world.slurm.restart("1")
    world.advance(500)
    assert current(world).phase is Phase.PENDING
    world.advance(300)
    job = current(world)
    assert (job.phase, job.reason, job.no_sign_of_start) == (Phase.LOST, None, False)


def test_a_slurmctld_that_was_away_for_long_may_have_died_before_it_saved_the_job(world: World) -> None:
    """A backup takes over after SlurmctldTimeout, two minutes by default; a person may take longer."""
    submitted(world)
    world.slurm.down = True
    world.advance(900)
    world.slurm.down = False
    world.slurm.restart("1")
    assert forgotten_within(world).no_sign_of_start


@pytest.mark.parametrize("shown_again", [True, False])
def test_a_slurmctld_that_was_away_after_it_had_saved_the_job_has_not_forgotten_it(
    world: World, *, shown_again: bool
) -> None:
    submitted(world, seconds=60 if shown_again else 1800)
    world.slurm.down = True
    world.advance(900)
    world.slurm.down = False
    if shown_again:
        world.advance(60)
    world.slurm.restart("1")
    world.advance(500)
    assert current(world).phase is Phase.PENDING
    world.advance(300)
    job = current(world)
    assert (job.phase, job.reason, job.no_sign_of_start) == (Phase.LOST, None, False)


def test_nodes_that_it_was_given_are_a_sign_of_a_start(world: World) -> None:
    """Its Prolog may run: on a node that slurmctld no longer asks."""
    submitted(world)
    world.slurm.put(replace(world.slurm.jobs["1"], state="CONFIGURING", nodes="n1"))
    world.advance(5)
    world.slurm.restart("1")
    job = forgotten_within(world)
    assert not job.no_sign_of_start
    assert "Slurm had given it nodes (n1)" in (job.message or "")


def test_a_job_that_the_restarted_slurmctld_showed_is_not_forgotten_by_that_restart(world: World) -> None:
    submitted(world)
    world.slurm.restart()
    world.advance(40)  # a boot time is kept for 30 s
    world.slurm.forget("1", rows_too=True)
    world.advance(300)
    assert current(world).phase is Phase.PENDING


def test_it_waits_until_slurmctld_has_answered_for_a_while(world: World) -> None:
    submitted(world)
    world.slurm.restart("1")
    for _ in range(6):
        world.advance(8)
        world.slurm.down = True
        world.advance(4)
        world.slurm.down = False
    assert current(world).phase is Phase.PENDING
    forgotten_within(world)


def test_it_waits_until_the_accounting_has_answered(world: World) -> None:
    submitted(world)
    world.slurm.restart("1")
    world.slurm.accounting_down = True
    world.advance(120)
    job = current(world)
    assert (job.phase, job.reason, job.stale_since is None) == (Phase.PENDING, None, False)
    world.slurm.accounting_down = False
    forgotten_within(world, 70)


def test_a_job_that_ended_before_its_controller_was_killed_has_its_own_end(world: World) -> None:
    submitted(world)
    world.slurm.start("1")
    world.slurm.end("1")
    world.slurm.restart("1", rows_too=False)
    world.advance(60)
    assert current(world).phase is Phase.SUCCEEDED


@pytest.mark.parametrize("sign", ["poll", "accounting", "output", "unlisted output"])
def test_any_sign_of_a_start_is_said_and_is_no_failed_attempt(world: World, sign: str) -> None:
    submitted(world)
    job = world.slurm.jobs["1"]
    match sign:
        case "poll":
            world.slurm.start("1")
            world.advance(5)
        case "accounting":
            world.slurm.start("1")
        case "output":
            world.slurm.outputs.add(OUTPUT)
        case _:
            world.slurm.outputs_unknown = True
    world.slurm.restart("1", rows_too=sign != "accounting")
    lost = forgotten_within(world, 90)
    assert not lost.no_sign_of_start
    assert "It may have started" in (lost.message or "")
    said = {
        "poll": "Slurm had shown that it started",
        "accounting": "the accounting has a start of it",
        "output": f"its output file {OUTPUT} exists",
        "unlisted output": f"whether its output file ({OUTPUT}) exists cannot be found out",
    }
    assert said[sign] in (lost.message or "")
    assert job.job_id == "1"


def test_an_array_of_which_a_task_had_started_may_have_started(world: World) -> None:
    submitted(world)
    tasks = (TaskObservation(0, "1_0", "RUNNING"),)
    array = replace(world.slurm.jobs["1"], tasks=tasks, pending_tasks=3, array_size=4, waiting=(range(1, 4),))
    world.slurm.put(array)
    world.advance(world.settings.longest_interval_s + 2)
    world.slurm.restart("1")
    assert not forgotten_within(world).no_sign_of_start


def test_an_array_that_no_poll_has_shown_has_no_output_that_could_be_looked_for() -> None:
    """Its tasks write to files with their ids: that none is called as the pattern is shows nothing."""
    record = JobRecord(
        key=JobKey(caller().owner, "k"),
        user=caller().user or UnixUser("", 0),
        mark="m",
        body_id="b",
        created_at=NOW,
        last_submit_at=NOW,
        job_id="7",
        status=ObservedStatus(stdout="/h/%j.out"),
    )
    assert output_of(record) is None
    assert output_of(replace(record, status=ObservedStatus(stdout="/h/%A_%a.out"))) is not None


def test_a_held_job_is_forgotten_as_one_that_waits(world: World) -> None:
    submitted(world, hold=True)
    world.slurm.restart("1")
    assert forgotten_within(world).no_sign_of_start


def test_a_job_whose_id_is_a_strangers_now_is_forgotten_and_the_stranger_untouched(world: World) -> None:
    submitted(world)
    world.slurm.restart("1")
    stranger = world.slurm.add_foreign(2002, job_id="1", state="RUNNING")
    job = forgotten_within(world)
    assert "has given the job id 1 to another job" in (job.message or "")
    assert world.slurm.jobs["1"] == stranger
    assert world.slurm.acts == []


def test_what_was_forgotten_lives_again_where_slurm_shows_it_again(world: World) -> None:
    submitted(world)
    job = world.slurm.jobs["1"]
    world.slurm.restart("1")
    forgotten_within(world)
    world.slurm.put(job)
    submitted(world, "two")
    job_again = current(world)
    assert (job_again.phase, job_again.reason) == (Phase.PENDING, "Priority")
    assert not job_again.no_sign_of_start


def test_a_red_box_that_starts_later_knows_under_which_start_the_job_was_shown(world: World) -> None:
    submitted(world)
    world.slurm.restart("1")
    world.restart()
    assert forgotten_within(world).no_sign_of_start


@pytest.mark.parametrize("waits_between", [True, False])
def test_a_second_run_that_slurm_does_not_count_is_a_run_and_is_said(
    world: World, *, waits_between: bool
) -> None:
    submitted(world)
    saved = world.slurm.jobs["1"]
    world.slurm.start("1")
    world.advance(15)
    world.slurm.restart()
    if waits_between:
        world.slurm.put(saved)
        world.advance(15)
        assert current(world).run == 2
    world.slurm.put(saved)
    world.slurm.start("1")
    world.advance(15)
    job = current(world)
    assert (job.phase, job.run) == (Phase.RUNNING, 2)
    assert any("this is run 2" in warning for warning in job.warnings)
    world.slurm.requeue("1")
    world.slurm.start("1")
    world.advance(15)
    assert current(world).run == 3


def test_an_end_that_slurmctld_has_forgotten_stays_until_it_runs_the_job_again(world: World) -> None:
    submitted(world)
    world.slurm.start("1")
    world.advance(5)
    running = world.slurm.jobs["1"]
    world.slurm.end("1")
    world.advance(5)
    world.slurm.restart()
    world.slurm.put(running)
    world.advance(60)
    assert (current(world).phase, current(world).run) == (Phase.SUCCEEDED, 1)
    world.slurm.put(replace(running, state="NODE_FAIL", exit_code=None))
    world.advance(60)
    assert current(world).phase is Phase.SUCCEEDED
    world.slurm.requeue("1")
    world.advance(15)
    assert (current(world).phase, current(world).run) == (Phase.PENDING, 2)


def test_after_a_failed_poll_the_boot_time_is_asked_for_again(world: World) -> None:
    """Else a job of the restarted slurmctld has the boot time of before, and is called forgotten."""
    submitted(world, "before")
    world.slurm.down = True
    world.advance(10)
    world.slurm.down = False
    world.slurm.restart()
    world.advance(5)
    submitted(world)
    world.slurm.forget("2", rows_too=True)
    world.advance(120)
    assert current(world).phase is Phase.PENDING
    assert "does not show job 2 at present" in (current(world).message or "")


def test_jobs_of_one_directory_are_looked_for_together(world: World) -> None:
    for number in range(4):
        submitted(world, f"job {number}", seconds=0.0)
    world.slurm.outputs.add("/home/alice/slurm-2.out")
    world.slurm.restart("1", "2", "3", "4")
    world.advance(60)
    signs = [not current(world, f"job {number}").no_sign_of_start for number in range(4)]
    assert signs == [False, True, False, False]
    assert world.slurm.outputs_asked == [("alice", 4)]


def test_a_home_that_hangs_delays_no_other_users(world: World) -> None:
    for number in range(20):
        submitted(world, f"alices {number}", seconds=0.0)
    other = caller(UnixUser("bob", 2002), "biology")
    world.run(world.jobs.put(other, KEY, 1, request()))
    world.slurm.hanging_homes.add(2001)
    world.slurm.restart(*map(str, range(1, 22)))
    world.advance(40)
    bobs = world.run(world.jobs.get(other, KEY))
    assert (bobs.phase, bobs.no_sign_of_start) == (Phase.LOST, True)
    assert current(world, "alices 0").phase is Phase.PENDING
    world.advance(60)
    alices = current(world, "alices 0")
    assert (alices.phase, alices.no_sign_of_start) == (Phase.LOST, False)
    assert "cannot be found out" in (alices.message or "")


def test_an_absent_output_that_only_the_node_may_see_shows_nothing(world: World) -> None:
    submitted(world)
    world.slurm.outputs_shared = False
    world.slurm.restart("1")
    job = forgotten_within(world, 90)
    assert not job.no_sign_of_start
    assert "cannot be found out" in (job.message or "")
