from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from redbox.core.domain import Owner
from redbox.core.workload_manager import JobAction
from redbox.jobs.errors import Gone, JobConflict, JobNotFound, JobsBusy, JournalError
from redbox.jobs.recovery import RecoveryResult, write
from redbox.jobs.store.journal import Journal
from redbox_api.models import Phase
from tests.redbox.jobs.harness import BOB, World, caller, lose_and_recover, operator, request

HERS = Owner("kube", "physics", "default")


def test_a_lost_journal_is_rebuilt_and_every_put_finds_its_job(world: World) -> None:
    for key in ("waits", "runs", "ended"):
        world.run(world.jobs.put(caller(), key, 1, request(spec_digest=f"digest of {key}")))
    world.slurm.start("2")
    world.slurm.start("3")
    world.slurm.end("3", "FAILED", code=4)
    world.slurm.purge("3")
    recovered = lose_and_recover(world)
    assert len(recovered.records) == 3
    assert recovered.complete
    for key, phase in (("waits", Phase.PENDING), ("runs", Phase.RUNNING), ("ended", Phase.FAILED)):
        job, created = world.run(world.jobs.put(caller(), key, 1, request(spec_digest=f"digest of {key}")))
        assert (job.phase, created) == (phase, False)
    with pytest.raises(JobConflict):
        world.run(world.jobs.put(caller(), "runs", 1, request(spec_digest="another")))
    assert len(world.slurm.ever) == 3


def test_recovered_jobs_belong_to_their_owners_only(world: World) -> None:
    world.run(world.jobs.put(caller(), "key", 1, request()))
    lose_and_recover(world)
    for stranger in (caller(uid="uid-2"), caller(BOB, "chemistry"), caller(BOB)):
        with pytest.raises(JobNotFound):
            world.run(world.jobs.get(stranger, "key"))
    assert [job.key for job in world.run(world.jobs.list(caller())).items] == ["key"]


def test_an_operator_finds_recovered_jobs_by_naming_their_owner_and_the_owner_finds_them_afterwards(
    world: World,
) -> None:
    world.run(world.jobs.put(caller(), "key", 1, request()))
    lose_and_recover(world)
    assert world.run(world.jobs.get(operator(), "key", 1, HERS)).job_id == "1"
    with pytest.raises(JobNotFound):
        world.run(world.jobs.get(caller(uid="uid-2"), "key"))
    assert world.run(world.jobs.get(caller(), "key")).job_id == "1"
    world.restart()
    assert world.run(world.jobs.get(caller(), "key")).job_id == "1"


def test_an_operator_can_cancel_a_recovered_job(world: World) -> None:
    world.run(world.jobs.put(caller(), "key", 1, request()))
    lose_and_recover(world)
    world.run(world.jobs.delete(operator(), "key", None, HERS))
    world.advance(10)
    assert world.slurm.acts == [(JobAction.CANCEL, "1")]


@pytest.mark.parametrize("stdout", ["/home/alice/work/runner-1.log", "/home/alice/work/runner-%j.log"])
def test_a_recovered_pod_is_stopped_before_it_is_cancelled_and_its_folder_is_removed(
    world: World, stdout: str
) -> None:
    world.run(world.jobs.put(caller(), "key", 1, request()))
    world.slurm.start("1")
    world.slurm.put(replace(world.slurm.jobs["1"], stdout=stdout))
    lose_and_recover(world)
    world.run(world.jobs.delete(operator(), "key", None, HERS))
    world.advance(10)
    assert world.slurm.acts == [(JobAction.STOP, "1")]
    world.advance(100)
    assert world.slurm.acts[1:] == [(JobAction.CANCEL, "1")]
    assert len(world.slurm.tidied) == 1


def test_forged_copied_and_doubled_marks_are_printed_and_not_believed(world: World) -> None:
    world.run(world.jobs.put(caller(), "key", 1, request()))
    mark = world.slurm.jobs["1"].mark
    world.slurm.add_foreign(2002, mark=mark)
    world.slurm.add_foreign(2001, mark=mark[:-1] + ("a" if mark[-1] != "a" else "b"))
    world.clock.advance_to(10)
    world.slurm.add_foreign(2001, mark=mark)
    recovered = lose_and_recover(world)
    assert [record.job_id for record in recovered.records] == ["1"]
    assert sorted((bad.job.job_id, bad.why[:12]) for bad in recovered.rejected) == [
        ("2", "its mark was"),
        ("3", "its mark was"),
        ("4", "job 1 carrie"),
    ]


def test_a_row_that_slurm_keeps_of_a_refused_submit_is_not_recovered_as_the_job(world: World) -> None:
    for key in ("accepted", "refused", "ran"):
        world.run(world.jobs.put(caller(), key, 1, request()))
    world.slurm.start("3")
    world.slurm.end("3", "FAILED", code=1)
    for number, job_id in enumerate(("1", "2")):
        job = world.slurm.jobs[job_id]
        before = job.submitted_at and job.submitted_at - timedelta(seconds=60)
        refused = replace(job, state="FAILED", reason="BadConstraints", live=False)
        row = replace(refused, job_id=f"9{number}", submitted_at=before)
        world.slurm.rows.append((0.0, row))
    world.slurm.forget("2", rows_too=True)
    recovered = lose_and_recover(world)
    assert sorted(record.job_id or "" for record in recovered.records) == ["1", "3"]
    assert recovered.rejected == ()
    world.advance(30)
    assert world.slurm.acts == []
    assert world.run(world.jobs.get(caller(), "accepted")).phase is Phase.PENDING
    with pytest.raises(JobNotFound):
        world.run(world.jobs.get(caller(), "refused"))


def test_after_a_take_over_nothing_is_submitted_at_first_and_then_only_held_and_looked_up(
    world: World,
) -> None:
    lose_and_recover(world)
    with pytest.raises(JobsBusy, match="just taken over"):
        world.run(world.jobs.put(caller(), "key", 1, request()))
    world.advance(100)
    world.restart()
    with pytest.raises(JobsBusy, match="just taken over"):
        world.run(world.jobs.put(caller(), "key", 1, request()))
    world.advance(100)
    world.run(world.jobs.put(caller(), "key", 1, request()))
    assert world.slurm.jobs["1"].reason == "JobHeldUser"
    world.advance(70)
    assert world.slurm.acts == []  # what the server before has sent may arrive within five minutes
    world.advance(50)
    assert world.slurm.acts == [(JobAction.RELEASE, "1")]
    world.advance(600)
    world.run(world.jobs.put(caller(), "later", 1, request()))
    assert world.slurm.jobs["2"].reason != "JobHeldUser"


def test_what_the_server_before_had_sent_wins_over_the_held_one(world: World) -> None:
    lose_and_recover(world)
    world.advance(200)
    world.run(world.jobs.put(caller(), "key", 1, request()))
    first = world.slurm.jobs["1"]
    world.slurm.jobs["2"] = replace(first, job_id="2", state="RUNNING", reason="None")
    world.advance(10)
    assert world.slurm.acts == [(JobAction.CANCEL, "1")]
    job = world.run(world.jobs.get(caller(), "key"))
    assert (job.job_id, job.phase) == ("2", Phase.RUNNING)


def test_a_journal_that_holds_jobs_is_not_written_over(world: World) -> None:
    world.run(world.jobs.put(caller(), "key", 1, request()))
    world.crash()
    journal = Journal(world.directory)
    with pytest.raises(JournalError, match="Move the old one away"):
        asyncio.run(write(journal, RecoveryResult((), (), complete=True), world.clock.now()))
    journal.close()


def test_a_watcher_of_the_lost_journal_begins_anew(world: World) -> None:
    old = world.run(world.jobs.list(caller())).revision
    lose_and_recover(world)
    with pytest.raises(Gone):
        world.jobs.watch(caller(), old)
