"""Jobs that were cancelled in Slurm: by whom, and those of which the launch failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redbox.core.observations import TaskObservation
from redbox_api.models import FINAL_PHASES, Job, Phase
from tests.redbox.jobs.harness import ALICE, World, caller, request

UNKNOWN = "It was cancelled in Slurm, which does not show who did it."
BY_ROOT = "It was cancelled by an administrator (root)."
ROOT = 0
TASK = (TaskObservation(0, "1_0", "CANCELLED"),)


def submitted(world: World, key: str = "one", **facts: Any) -> str:
    """A job that runs; its id."""
    job, _ = world.run(world.jobs.put(caller(), key, 1, request(**facts)))
    assert job.job_id is not None
    world.slurm.start(job.job_id)
    world.advance(5)
    return job.job_id


def scancel(world: World, job_id: str, by: int = ROOT, **facts: Any) -> None:
    job = world.slurm.jobs[job_id]
    world.slurm.put(replace(job, state="CANCELLED", cancelled_by=by, ended_at=world.clock.now(), **facts))


def current(world: World, key: str = "one") -> Job:
    return world.run(world.jobs.get(caller(), key))


def asked_about(world: World, job_id: str) -> int:
    return sum(job_id in ids for ids in world.slurm.history_asked)


# ---------------------------------------------------------------------------------------------- by whom


@pytest.mark.parametrize(
    ("by", "said"),
    [(ROOT, BY_ROOT), (ALICE.uid, "It was cancelled by alice."), (4711, "by the user with uid 4711.")],
)
def test_the_accounting_says_who_cancelled_a_job_that_the_queue_still_shows(
    world: World, by: int, said: str
) -> None:
    scancel(world, submitted(world), by)
    world.advance(15)
    job = current(world)
    assert (job.phase, said in (job.message or "")) == (Phase.CANCELLED, True)


def test_it_is_asked_once_about_all_jobs_of_a_poll_and_never_again(world: World) -> None:
    ids = [submitted(world, f"job-{number}") for number in range(20)]
    before = len(world.slurm.history_asked)
    for job_id in ids:
        scancel(world, job_id)
    world.advance(250)
    asked = world.slurm.history_asked[before:]
    assert [sorted(job_ids) for job_ids in asked] == [sorted(ids)]


def test_a_sentence_that_is_complete_is_not_written_again(world: World) -> None:
    scancel(world, submitted(world))
    world.advance(15)
    known = current(world)
    world.advance(200)
    assert current(world).revision == known.revision


def test_rows_that_are_late_complete_the_sentence_of_an_end_that_is_final(world: World) -> None:
    job_id = submitted(world)
    world.slurm.rows_late_s = 1000.0
    scancel(world, job_id)
    world.advance(60)
    ended = current(world)
    assert (ended.phase, ended.message) == (Phase.CANCELLED, UNKNOWN)
    world.advance(500)  # the queue has forgotten the job
    assert current(world).message == UNKNOWN
    world.advance(1000)
    job = current(world)
    assert (job.phase, job.message) == (Phase.CANCELLED, BY_ROOT)
    assert asked_about(world, job_id) < 40


def test_an_accounting_that_does_not_answer_is_asked_ever_more_rarely(world: World) -> None:
    job_id = submitted(world)
    world.slurm.accounting_down = True
    scancel(world, job_id)
    world.advance(3600)
    asked = asked_about(world, job_id)
    assert asked < 40
    world.slurm.accounting_down = False
    world.advance(1000)
    assert current(world).message == BY_ROOT


def test_without_accounting_the_sentence_says_that_slurm_does_not_show_who(world: World) -> None:
    world.slurm.accounting = False
    job_id = submitted(world)
    scancel(world, job_id)
    world.advance(200)
    job = current(world)
    assert (job.phase, job.message) == (Phase.CANCELLED, UNKNOWN)
    assert asked_about(world, job_id) == 1


def test_a_job_that_red_box_cancelled_is_not_asked_about(world: World) -> None:
    job_id = submitted(world)
    world.run(world.jobs.delete(caller(), "one"))
    world.advance(100)
    job = current(world)
    assert (job.phase, job.message) == (Phase.CANCELLED, "It was cancelled through red-box.")
    assert asked_about(world, job_id) == 0


def test_who_cancelled_one_run_is_not_said_of_the_next(world: World) -> None:
    job_id = submitted(world)
    scancel(world, job_id)
    world.advance(15)
    assert current(world).message == BY_ROOT
    world.slurm.requeue(job_id)
    world.advance(15)
    world.slurm.start(job_id)
    world.advance(15)
    assert current(world).phase is Phase.RUNNING
    scancel(world, job_id, ALICE.uid)
    world.advance(15)
    assert current(world).message == "It was cancelled by alice."


def test_who_cancelled_a_run_that_slurmctld_forgot_is_not_said_of_the_next(world: World) -> None:
    job_id = submitted(world)
    job = world.slurm.jobs[job_id]
    scancel(world, job_id, requeue=False)
    world.advance(5)
    assert current(world).phase not in FINAL_PHASES
    world.slurm.put(replace(job, requeue=False, started_at=world.clock.now()))
    world.advance(5)
    scancel(world, job_id, ALICE.uid)
    world.advance(40)
    assert (current(world).phase, current(world).message) == (Phase.CANCELLED, "It was cancelled by alice.")


def test_a_server_that_starts_meanwhile_asks(world: World) -> None:
    job_id = submitted(world)
    world.slurm.accounting_down = True
    scancel(world, job_id)
    world.advance(15)
    world.restart()
    world.slurm.accounting_down = False
    world.advance(30)
    assert current(world).message == BY_ROOT


# -------------------------------------------------------------------------------------- failed launches


def not_launched(world: World, by: int = ROOT, key: str = "one", **facts: Any) -> Job:
    """A job that may not be requeued, soon after it was cancelled on its node."""
    job_id = submitted(world, key)
    stdout = f"/home/alice/slurm-{job_id}.out"
    scancel(world, job_id, by, **{"requeue": False, "stdout": stdout, **facts})
    world.advance(4)
    return current(world, key)


def test_a_job_that_its_node_could_not_launch_has_failed_without_a_sign_of_a_start(world: World) -> None:
    """It ends once: an operator acts on the first end that it sees."""
    assert not_launched(world).phase is Phase.RUNNING
    world.advance(30)
    job = current(world)
    assert (job.phase, job.state, job.reason) == (Phase.FAILED, "CANCELLED", "LaunchFailed")
    assert job.no_sign_of_start
    assert "cancelled on n1 before its script began: by Slurm" in (job.message or "")
    world.advance(100)
    assert current(world).revision == job.revision


@pytest.mark.parametrize("sign", ["output", "task", "shared output"])
def test_with_a_sign_of_a_start_it_was_cancelled_by_root_and_ends_at_once(world: World, sign: str) -> None:
    facts: dict[str, Any] = {}
    match sign:
        case "output":
            world.slurm.outputs.add("/home/alice/slurm-1.out")
        case "shared output":  # of an array: another job may have made it, and no task need have
            facts = {"tasks": (TaskObservation(0, "1_0", "CANCELLED"),), "array_size": 1}
        case _:
            ended = (TaskObservation(0, "1_0", "COMPLETED", 0), TaskObservation(1, "1_1", "CANCELLED"))
            facts = {"tasks": ended, "array_size": 2, "stdout": "/home/alice/slurm-1_%a.out"}
    job = not_launched(world, **facts)
    assert (job.phase, job.message, job.no_sign_of_start) == (Phase.CANCELLED, BY_ROOT, False)


def test_an_array_of_which_no_task_was_launched_has_failed(world: World) -> None:
    tasks = (TaskObservation(0, "1_0", "CANCELLED"), TaskObservation(1, "1_1", "CANCELLED"))
    not_launched(world, tasks=tasks, array_size=2, stdout="/home/alice/slurm-1_%a.out")
    world.advance(30)
    assert (current(world).phase, current(world).reason) == (Phase.FAILED, "LaunchFailed")


def test_what_its_user_cancelled_or_slurm_would_have_held_was_cancelled(world: World) -> None:
    for job in (not_launched(world, ALICE.uid), not_launched(world, key="two", requeue=True)):
        assert (job.phase, job.no_sign_of_start) == (Phase.CANCELLED, False)


def test_a_job_that_waits_has_no_launch_that_could_fail(world: World) -> None:
    world.run(world.jobs.put(caller(), "one", 1, request(hold=True)))
    scancel(world, "1", requeue=False, stdout="/home/alice/slurm-1.out")
    world.advance(4)
    assert (current(world).phase, current(world).message) == (Phase.CANCELLED, BY_ROOT)


@pytest.mark.parametrize("doubt", ["who", "output"])
def test_a_doubt_that_stays_is_a_sign_of_a_start(world: World, doubt: str) -> None:
    world.slurm.accounting_down = doubt == "who"
    world.slurm.outputs_unknown = doubt == "output"
    assert not_launched(world).phase is Phase.RUNNING
    world.advance(40)
    job = current(world)
    assert (job.phase, job.no_sign_of_start) == (Phase.CANCELLED, False)
    assert job.message == (UNKNOWN if doubt == "who" else BY_ROOT)


def test_without_accounting_an_end_does_not_wait_for_it(world: World) -> None:
    world.slurm.accounting = False
    job = not_launched(world)
    assert (job.phase, job.message) == (Phase.CANCELLED, UNKNOWN)


def test_a_restarted_server_goes_on(world: World) -> None:
    assert not_launched(world).phase is Phase.RUNNING
    world.restart()
    world.advance(40)
    assert (current(world).phase, current(world).reason) == (Phase.FAILED, "LaunchFailed")


# ---------------------------------------------------------------------------- launches after a first start


def launched_again(world: World, how: str, ran_s: float = 0, **facts: Any) -> Job:
    """A job that Slurm launched twice, soon after it was cancelled on its node; its first run has written."""
    job_id = submitted(world)
    world.slurm.outputs.add(f"/home/alice/slurm-{job_id}.out")
    if how == "requeue":
        world.slurm.requeue(job_id)
        world.advance(5)
        world.slurm.start(job_id)
    else:  # as a restarted slurmctld does, which does not count it
        world.advance(5)
        world.slurm.put(replace(world.slurm.jobs[job_id], started_at=world.clock.now()))
    world.slurm.put(replace(world.slurm.jobs[job_id], requeue=False))
    world.advance(ran_s)
    facts = {"requeue": False, "stdout": f"/home/alice/slurm-{job_id}.out", **facts}
    scancel(world, job_id, **facts)
    world.advance(4)
    return current(world)


@pytest.mark.parametrize("how", ["requeue", "restart"])
def test_a_job_of_which_the_second_launch_failed_is_lost_and_says_when_the_first_began(
    world: World, how: str
) -> None:
    """Its output is no sign of that launch; only `retryLost` may have it run again."""
    first = world.clock.now()
    assert launched_again(world, how).phase not in FINAL_PHASES
    world.advance(30)
    job = current(world)
    assert (job.phase, job.state, job.reason, job.run) == (Phase.LOST, "CANCELLED", "LaunchFailed", 2)
    assert not job.no_sign_of_start
    assert f"The run before had started at {first:%H:%M:%S} UTC" in (job.message or "")
    world.slurm.put(replace(world.slurm.jobs[str(job.job_id)], reason="looked at again"))
    world.advance(100)
    world.restart()
    world.advance(100)
    again = current(world)
    assert (again.phase, again.reason, again.message) == (job.phase, job.reason, job.message)


def test_a_lost_job_that_an_administrator_requeues_lives_again(world: World) -> None:
    job = launched_again(world, "requeue")
    world.advance(30)
    world.slurm.requeue(str(job.job_id))
    world.advance(5)
    world.slurm.start(str(job.job_id))
    world.advance(5)
    job = current(world)
    assert (job.phase, job.reason, job.run) == (Phase.RUNNING, "None", 3)


# ------------------------------------------------------------------------------- deleted after their end


def ended_as(world: World, how: str) -> Job:
    """A job whose end is final, and that Slurm's queue still shows."""
    match how:
        case "lost":
            launched_again(world, "requeue")
        case "not launched":
            not_launched(world)
        case "cancelled":
            scancel(world, submitted(world))
        case _:
            world.slurm.rows_late_s = 300.0
            scancel(world, submitted(world))
    world.advance(40)
    return current(world)


@pytest.mark.parametrize(
    ("how", "phase", "reason"),
    [
        ("lost", Phase.LOST, "LaunchFailed"),
        ("not launched", Phase.FAILED, "LaunchFailed"),
        ("cancelled", Phase.CANCELLED, "None"),
    ],
)
def test_a_delete_after_the_end_changes_nothing_of_it(
    world: World, how: str, phase: Phase, reason: str
) -> None:
    ended = ended_as(world, how)
    assert (ended.phase, ended.reason) == (phase, reason)
    deleted = world.run(world.jobs.delete(caller(), "one"))[0]
    assert deleted.cancel_requested
    assert (deleted.phase, deleted.reason, deleted.message) == (ended.phase, ended.reason, ended.message)
    job = world.slurm.jobs[str(ended.job_id)]
    world.slurm.put(replace(job, name="another row of the same end"))
    world.advance(20)
    world.restart()
    world.advance(20)
    later = current(world)
    assert later.name == "another row of the same end"
    assert (later.phase, later.reason, later.message) == (ended.phase, ended.reason, ended.message)


def test_who_cancelled_a_job_is_still_found_out_after_its_delete(world: World) -> None:
    assert ended_as(world, "cancelled, with late rows").message == UNKNOWN
    world.run(world.jobs.delete(caller(), "one"))
    world.advance(400)
    assert (current(world).phase, current(world).message) == (Phase.CANCELLED, BY_ROOT)


def test_a_delete_after_the_end_holds_for_a_further_run_which_red_box_cancels(world: World) -> None:
    ended = ended_as(world, "lost")
    world.run(world.jobs.delete(caller(), "one"))
    world.slurm.requeue(str(ended.job_id))
    world.advance(60)
    job = current(world)
    assert (job.phase, job.message, job.run) == (Phase.CANCELLED, "It was cancelled through red-box.", 3)


@pytest.mark.parametrize(
    "facts", [{"signal": 15}, {"exit_code": 1}, {"by": ALICE.uid}, {"tasks": TASK, "array_size": 1}]
)
def test_a_second_run_that_began_or_that_its_user_ended_was_cancelled(
    world: World, facts: dict[str, Any]
) -> None:
    launched_again(world, "requeue", **facts)
    world.advance(30)
    assert (current(world).phase, current(world).reason != "LaunchFailed") == (Phase.CANCELLED, True)


def test_a_second_run_that_went_on_for_long_was_cancelled_and_had_begun(world: World) -> None:
    """A script of a node that is gone has no code and no signal."""
    launched_again(world, "requeue", ran_s=660)
    world.advance(30)
    assert (current(world).phase, current(world).message) == (Phase.CANCELLED, BY_ROOT)


def test_an_end_of_a_second_run_that_only_the_accounting_shows_was_cancelled(world: World) -> None:
    """Its rows have no signal of any cancelled job."""
    job_id = submitted(world)
    world.slurm.requeue(job_id)
    world.advance(5)
    world.slurm.start(job_id)
    world.slurm.put(replace(world.slurm.jobs[job_id], requeue=False))
    world.advance(5)
    scancel(world, job_id)
    world.slurm.purge(job_id)
    world.advance(40)
    assert (current(world).phase, current(world).message) == (Phase.CANCELLED, BY_ROOT)
