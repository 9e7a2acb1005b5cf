from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redbox.core.workload_manager import JobAction, SubmitAccepted
from redbox.jobs.errors import JobConflict, JobNotFound, JobsBusy, RefusedBySlurm, Tombstoned
from redbox.jobs.record.record import Stage
from redbox.jobs.submit.coordinator import after_submit
from redbox_api.models import Job, Phase
from tests.redbox.jobs.factories import RECORD
from tests.redbox.jobs.harness import BOB, World, caller, request
from tests.redbox.jobs.submit_manners import HANGS, NEVER_ARRIVES, REFUSED, UNAVAILABLE, Manner, late

KEY = "3f2b7c1e-0000-4000-8000-000000000001"


def put(world: World, key: str = KEY, **facts: Any) -> tuple[Job, bool]:
    return world.run(world.jobs.put(caller(), key, 1, request(**facts)))


def test_a_put_submits_once_and_the_same_put_again_is_the_same_job(world: World) -> None:
    first, created = world.run(world.jobs.put(caller(), KEY, 1, request()))
    again, created_again = world.run(world.jobs.put(caller(), KEY, 1, request()))
    assert (created, created_again) == (True, False)
    assert first.job_id == again.job_id == "1"
    assert len(world.slurm.ever) == 1


def test_two_puts_at_once_share_one_submit(world: World) -> None:
    tasks = [world.begin(world.jobs.put(caller(), KEY, 1, request())) for _ in range(5)]
    world.settle()
    assert sorted(task.result()[1] for task in tasks) == [False, False, False, False, True]
    assert len(world.slurm.ever) == 1


def test_another_body_under_the_same_key_is_a_conflict_even_while_the_first_is_under_way(
    world: World,
) -> None:
    first = world.begin(world.jobs.put(caller(), KEY, 1, request()))
    second = world.begin(world.jobs.put(caller(), KEY, 1, request(script="#!/bin/sh\nfalse\n")))
    world.settle()
    assert first.result()[1]
    assert isinstance(second.exception(), JobConflict)
    with pytest.raises(JobConflict, match="already stands for another request"):
        put(world, script="#!/bin/sh\nfalse\n")


def test_an_equal_digest_with_another_body_is_the_same_job_and_says_that_the_body_changed(
    world: World,
) -> None:
    put(world, spec_digest="d1", env={"TOKEN": "old"})
    job, created = world.run(
        world.jobs.put(caller(), KEY, 1, request(spec_digest="d1", env={"TOKEN": "new"}))
    )
    assert not created
    assert job.env_changed
    with pytest.raises(JobConflict):
        put(world, spec_digest="d2", env={"TOKEN": "old"})


def test_two_owners_may_hold_the_same_key_and_see_nothing_of_each_other(world: World) -> None:
    put(world)
    with pytest.raises(JobNotFound):
        world.run(world.jobs.get(caller(BOB, "chemistry"), KEY))
    job, created = world.run(world.jobs.put(caller(BOB, "chemistry"), KEY, 1, request()))
    assert created
    assert job.job_id == "2"


def test_a_namespace_made_anew_does_not_inherit_the_jobs_of_the_old_one(world: World) -> None:
    put(world)
    with pytest.raises(JobNotFound):
        world.run(world.jobs.get(caller(uid="uid-2"), KEY))
    assert world.run(world.jobs.put(caller(uid="uid-2"), KEY, 1, request()))[1]


def test_slurms_refusal_is_given_in_its_words_and_the_key_stays_free(world: World) -> None:
    world.slurm.manners.append(REFUSED)
    with pytest.raises(RefusedBySlurm, match="invalid partition specified: nowhere"):
        put(world)
    with pytest.raises(JobNotFound):
        world.run(world.jobs.get(caller(), KEY))
    assert put(world)[1]


def test_the_row_that_slurm_keeps_of_a_refused_submit_is_not_taken_for_the_job(world: World) -> None:
    put(world, key=KEY.replace("0001", "0002"))  # another job, for which red-box looks at the queue
    world.slurm.manners.append(Manner(None, 20.0, REFUSED.answer))
    task = world.begin(world.jobs.put(caller(), KEY, 1, request()))
    world.settle()
    sbatch = world.slurm.processes[-1]
    kept = world.slurm.add_foreign(sbatch.user.uid, sbatch.submission.mark)
    world.slurm.put(replace(kept, state="FAILED", reason="BadConstraints", ended_at=world.clock.now()))
    world.advance(25)  # looks go on, and sbatch says no
    assert isinstance(task.exception(), RefusedBySlurm)
    job, created = put(world)
    assert (job.job_id, created) == ("3", True)
    world.advance(10)
    job = world.run(world.jobs.get(caller(), KEY))
    assert (job.job_id, job.phase) == ("3", Phase.PENDING)
    assert not world.slurm.acts


def test_a_slurm_that_cannot_be_asked_is_a_reason_to_come_again_and_nothing_is_left_behind(
    world: World,
) -> None:
    world.slurm.manners.append(UNAVAILABLE)
    with pytest.raises(JobsBusy, match=r"^Nothing was submitted, .*: Unable to contact"):
        put(world)
    assert put(world)[1]
    assert len(world.slurm.ever) == 1


def test_a_deadline_only_detaches_the_caller(world: World) -> None:
    world.slurm.manners.append(late(40.0, ends_s=41.0))
    began = world.clock.elapsed
    with pytest.raises(JobsBusy, match="takes long and goes on"):
        put(world)
    assert world.clock.elapsed - began == world.settings.answer_within_s
    world.advance(60)
    job, created = world.run(world.jobs.put(caller(), KEY, 1, request()))
    assert not created
    assert job.job_id == "1"


@pytest.mark.parametrize("delay", [30.0, 90.0, 400.0])
def test_a_submit_that_arrives_long_after_its_sbatch_gave_up_never_makes_two_jobs(
    world: World, delay: float
) -> None:
    world.slurm.manners.append(late(delay))
    for _ in range(40):
        try:
            put(world)
        except JobsBusy:
            world.advance(10)
        else:
            break
    world.advance(600)
    living = world.slurm.living(world.slurm.ever[0].mark)
    assert len(living) == 1
    assert living[0].reason != "JobHeldUser"
    assert world.run(world.jobs.get(caller(), KEY)).job_id == living[0].job_id
    assert len(world.slurm.ever) == (1 if delay < 60 else 2)


def test_an_sbatch_that_still_runs_keeps_its_key_in_doubt(world: World) -> None:
    world.slurm.manners.append(HANGS)
    world.begin(world.jobs.put(caller(), KEY, 1, request()))
    world.settle()
    taken = world.slurm.ever[0]
    world.slurm.forget(taken.job_id, rows_too=True)
    world.restart()
    world.advance(300)
    with pytest.raises(JobsBusy, match="nothing is submitted twice"):
        put(world)
    assert len(world.slurm.ever) == 1


def test_a_crash_between_submit_and_answer_is_healed_by_the_mark(world: World) -> None:
    world.slurm.manners.append(HANGS)
    world.begin(world.jobs.put(caller(), KEY, 1, request()))
    world.settle()
    world.restart()
    job, created = put(world)
    assert not created
    assert job.job_id == "1"
    assert len(world.slurm.ever) == 1


def test_a_job_that_came_and_went_while_the_server_was_away_is_found_in_the_accounting(world: World) -> None:
    world.slurm.manners.append(HANGS)
    world.begin(world.jobs.put(caller(), KEY, 1, request()))
    world.settle()
    world.crash()
    world.slurm.start("1")
    world.slurm.end("1", "FAILED", code=3)
    world.slurm.purge("1")
    world.slurm.processes.clear()
    world.clock.advance_to(3600)
    world.start()
    world.advance(30)
    job = world.run(world.jobs.get(caller(), KEY))
    assert (job.phase, job.exit_code, job.job_id) == (Phase.FAILED, 3, "1")
    assert not put(world)[1]


def test_without_accounting_what_could_have_run_unseen_is_lost_and_not_submitted_again(world: World) -> None:
    world.slurm.accounting = False
    world.slurm.manners.append(HANGS)
    world.begin(world.jobs.put(caller(), KEY, 1, request()))
    world.settle()
    world.crash()
    world.slurm.purge("1")
    world.slurm.processes.clear()
    world.clock.advance_to(3600)
    world.start()
    world.advance(60)
    job = world.run(world.jobs.get(caller(), KEY))
    assert job.phase is Phase.LOST
    assert "not submitted again" in (job.message or "")
    assert not put(world)[1]


def test_a_second_job_with_the_mark_is_cancelled_while_it_waits(world: World) -> None:
    put(world)
    world.advance(5)
    mark = world.slurm.jobs["1"].mark
    world.slurm.add_foreign(2001, mark=mark)
    world.advance(15)
    assert (JobAction.CANCEL, "2") in world.slurm.acts
    assert ("red-box", "cancel", "2") in {(deed.caller, deed.act, deed.job_id) for deed in world.deeds}
    assert world.slurm.jobs["1"].state == "PENDING"


def test_a_second_job_that_runs_already_is_reported_and_not_touched(world: World) -> None:
    put(world)
    world.advance(5)
    world.slurm.add_foreign(2001, mark=world.slurm.jobs["1"].mark, state="RUNNING")
    world.advance(15)
    assert world.slurm.acts == []
    assert any("Duplicate: job 2" in w for w in world.run(world.jobs.get(caller(), KEY)).warnings)


def test_a_mark_that_another_user_copied_says_nothing(world: World) -> None:
    put(world)
    world.advance(5)
    world.slurm.add_foreign(2002, mark=world.slurm.jobs["1"].mark, state="RUNNING")
    world.advance(5)
    assert world.run(world.jobs.get(caller(), KEY)).warnings == []
    assert world.slurm.acts == []


def test_a_cancel_before_the_submit_leaves_a_tombstone(world: World) -> None:
    with pytest.raises(JobNotFound):
        world.run(world.jobs.delete(caller(), KEY))
    world.restart()
    with pytest.raises(Tombstoned):
        put(world)
    assert world.slurm.ever == []


def test_a_tombstone_for_all_attempts_refuses_each_and_cancels_those_that_are_there(world: World) -> None:
    put(world)
    world.run(world.jobs.delete(caller(), KEY, None))
    world.advance(5)
    assert world.run(world.jobs.get(caller(), KEY)).phase is Phase.CANCELLED
    with pytest.raises(Tombstoned):
        world.run(world.jobs.put(caller(), KEY, 2, request()))


def test_a_delete_during_a_submit_cancels_as_soon_as_the_id_is_known(world: World) -> None:
    world.slurm.manners.append(late(20.0, ends_s=21.0))
    task = world.begin(world.jobs.put(caller(), KEY, 1, request()))
    world.settle()
    (job,) = world.run(world.jobs.delete(caller(), KEY))
    assert job.cancel_requested
    world.advance(25)
    assert task.result()[0].job_id == "1"
    assert world.slurm.jobs["1"].state == "CANCELLED"
    assert world.run(world.jobs.get(caller(), KEY)).phase is Phase.CANCELLED


def test_a_delete_during_a_submit_survives_a_crash(world: World) -> None:
    world.slurm.manners.append(late(20.0, ends_s=21.0))
    world.begin(world.jobs.put(caller(), KEY, 1, request()))
    world.settle()
    world.run(world.jobs.delete(caller(), KEY))
    world.restart()
    world.advance(60)
    assert world.slurm.jobs["1"].state == "CANCELLED"


def test_a_deleted_intent_that_never_arrives_ends_cancelled_and_its_key_stays_deleted(world: World) -> None:
    world.slurm.manners.append(NEVER_ARRIVES)
    with pytest.raises(JobsBusy):
        put(world)
    world.run(world.jobs.delete(caller(), KEY))
    world.advance(120)
    assert world.run(world.jobs.get(caller(), KEY)).phase is Phase.CANCELLED
    with pytest.raises(Tombstoned):
        put(world)


def test_a_deleted_intent_that_arrives_after_all_is_cancelled(world: World) -> None:
    world.slurm.manners.append(late(400.0))
    with pytest.raises(JobsBusy):
        put(world)
    world.run(world.jobs.delete(caller(), KEY))
    world.advance(500)
    assert world.slurm.jobs["1"].state == "CANCELLED"


def test_a_refused_submit_that_was_deleted_meanwhile_stays_deleted(world: World) -> None:
    world.slurm.manners.append(late(1e9, ends_s=20.0))
    world.slurm.manners[0] = type(world.slurm.manners[0])(None, 20.0, REFUSED.answer)
    task = world.begin(world.jobs.put(caller(), KEY, 1, request()))
    world.settle()
    world.run(world.jobs.delete(caller(), KEY))
    world.advance(25)
    assert isinstance(task.exception(), Tombstoned)
    with pytest.raises(Tombstoned):
        put(world)


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"script": "#!/bin/sh\ntrue\n"}, "redbox"),
        ({"script": "#!/bin/sh\n#SBATCH --job-name=train\n"}, "train"),
        ({"script": "#!/bin/sh\n#SBATCH -J 'my job' # mine\n"}, "my job"),
        ({"script": "#!/bin/sh\n#SBATCH -Ja\n\n# b\n#SBATCH --job-name last\ntrue\n#SBATCH -J no\n"}, "last"),
        ({"script": "#!/bin/sh\n#SBATCH -J first\n#SBATCH hetjob\n#SBATCH -J second\n"}, "first"),
        ({"script": "#!/bin/sh\ntrue\n", "name": "field"}, "field"),
    ],
)
def test_a_job_has_the_name_that_its_request_or_its_script_gives_it(
    world: World, facts: dict[str, Any], name: str
) -> None:
    put(world, **facts)
    submission = world.slurm.processes[-1].submission
    assert submission.job_name == name
    assert submission.working_directory == f"{{home}}/redbox/physics/{name}-3f2b7c1e"


@pytest.mark.parametrize(
    ("options", "script", "name"),
    [
        ([], "#SBATCH -J script", "script"),
        (["--job-name=option"], "#SBATCH -J script", "option"),
        (["--job-name=option", "--job-name=last"], "", "last"),
        (["--exclusive"], "", "field"),
    ],
)
def test_a_name_as_sbatch_takes_it_counts_before_the_requests_and_the_directory_keeps_that(
    world: World, options: list[str], script: str, name: str
) -> None:
    put(world, script=f"#!/bin/sh\n{script}\n", name="field", options=options)
    submission = world.slurm.processes[-1].submission
    assert submission.job_name == name
    assert submission.working_directory == "{home}/redbox/physics/field-3f2b7c1e"


def test_an_sbatch_that_ends_between_a_look_and_the_question_for_it_is_not_taken_for_absent(
    world: World,
) -> None:
    world.slurm.accounting = False
    world.slurm.manners.append(late(1e6, ends_s=30.0))
    with pytest.raises(JobsBusy):
        put(world)
    sbatch = world.slurm.processes[0]

    async def submitting(*_: object) -> bool:
        if not sbatch.arrived:
            sbatch.arrived = True
            sbatch.job_id = world.slurm.take(sbatch.user, sbatch.submission)
        return False

    world.slurm.submitting = submitting  # type: ignore[method-assign, assignment]
    stages = set()
    for _ in range(200):
        world.advance(0.5)
        stages |= {record.stage for record in world.jobs}
    assert stages == {Stage.INTENT, Stage.BOUND}


def test_of_what_sbatch_says_beside_an_id_some_lines_are_kept() -> None:
    """The user's own agent may say anything."""
    said = tuple(f"{number} {'x' * 200_000}" for number in range(100))
    intent = replace(RECORD, stage=Stage.INTENT, job_id=None)
    change = after_submit(intent, SubmitAccepted("7", warnings=said), held=False, now=RECORD.created_at)
    (accepted,) = change.save
    assert accepted.job_id == "7"
    assert len(accepted.warnings) == 8
    assert sum(map(len, accepted.warnings)) < 10_000
