"""Rows become jobs: plain ones, arrays, het jobs, and those that contradict themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redbox.core.observations import Observation, TaskObservation
from redbox.slurm.commands.squeue import QueueRow, read_row
from redbox.slurm.text.states import Exit
from redbox.slurm.views.queue_jobs import QueueJobBuilder, build_queue_jobs
from tests.redbox.slurm.captured import RELEASES, job_ids, queue_rows
from tests.redbox.slurm.factories import PLAIN


def row(job_id: str = "7", **changes: object) -> QueueRow:
    plain = read_row(PLAIN | {"JobID": job_id, "ArrayJobID": job_id})
    assert plain is not None
    return replace(plain, **changes)  # type: ignore[arg-type]


def job(release: str, name: str) -> Observation:
    jobs, ambiguous = build_queue_jobs(queue_rows(release)[0])
    assert not ambiguous
    return next(job for job in jobs if job.job_id == job_ids(release)[name])


@pytest.mark.parametrize("release", RELEASES)
def test_an_array_is_one_job_with_its_tasks_and_the_count_of_those_that_wait(release: str) -> None:
    array = job(release, "array")
    assert array.state == "RUNNING"
    assert [(task.index, task.state, task.exit_code) for task in array.tasks] == [
        (0, "COMPLETED", 0),
        (1, "FAILED", 1),
        (2, "FAILED", 2),
        (3, "RUNNING", None),
        (4, "RUNNING", None),
    ]
    assert (array.pending_tasks, array.array_size) == (5, 10)
    assert array.tasks[1].job_id == f"{array.job_id}_1"
    assert array.ended_at is None


def test_each_task_of_an_array_has_restarts_of_its_own() -> None:
    parts = [row("7", array_task="0", restarts=2), row("8", array_job_id="7", array_task="1")]
    (array,), _ = build_queue_jobs(parts)
    assert [(task.index, task.restarts) for task in array.tasks] == [(0, 2), (1, 0)]


@pytest.mark.parametrize("release", RELEASES)
def test_an_array_of_which_no_task_is_split_off_is_counted_by_its_expression(release: str) -> None:
    array = job(release, "array_held")
    assert (array.state, array.reason) == ("PENDING", "JobHeldUser")
    assert (array.tasks, array.pending_tasks, array.array_size) == ((), 1334, 1334)
    assert array.waiting == (range(1, 4001, 3),)


def test_a_task_that_waits_again_is_told_where_squeue_puts_it_among_those_that_never_began() -> None:
    rows = [row("7", array_task="0,5-9%2"), row("9", array_job_id="7", array_task="1", state="RUNNING")]
    array = build_queue_jobs(rows)[0][0]
    assert [task.index for task in array.tasks] == [1]
    assert (array.pending_tasks, array.waiting) == (6, (range(1), range(5, 10)))


@pytest.mark.parametrize("release", RELEASES)
def test_tasks_that_were_cancelled_before_they_were_split_off_are_told_one_by_one(release: str) -> None:
    array = job(release, "array_cut")
    assert array.state == "CANCELLED"
    assert [(task.index, task.state) for task in array.tasks] == [
        (0, "COMPLETED"),
        (1, "COMPLETED"),
        *((index, "CANCELLED") for index in range(2, 6)),
    ]
    assert (array.pending_tasks, array.array_size) == (0, 6)
    assert array.ended_at is not None


@pytest.mark.parametrize(
    ("states", "folded"),
    [
        (("COMPLETING", "RUNNING", "PENDING"), "RUNNING"),
        (("COMPLETING", "COMPLETED", "PENDING"), "PENDING"),
        (("COMPLETING", "COMPLETED", "FAILED"), "COMPLETING"),
    ],
)
def test_an_array_is_completing_only_once_nothing_else_of_it_lives(
    states: tuple[str, str, str], folded: str
) -> None:
    first, second, rest = states
    array, *others = build_queue_jobs(
        [
            row("7", array_task="2-9", state=rest),
            row("8", array_job_id="7", array_task="0", state=first),
            row("9", array_job_id="7", array_task="1", state=second),
        ]
    )[0]
    assert (array.job_id, array.state, others) == ("7", folded, [])


@pytest.mark.parametrize("release", RELEASES)
def test_a_het_job_is_its_leader(release: str) -> None:
    jobs, _ = build_queue_jobs(queue_rows(release)[0])
    leader = job_ids(release)["het"]
    assert [job.job_id for job in jobs if job.job_id in (leader, str(int(leader) + 1))] == [leader]


@pytest.mark.parametrize(
    ("states", "folded"),
    [
        (("RUNNING", "FAILED"), "RUNNING"),
        (("COMPLETED", "RUNNING"), "RUNNING"),
        (("COMPLETED", "PENDING"), "PENDING"),
        (("COMPLETING", "RUNNING"), "RUNNING"),
        (("COMPLETING", "PENDING"), "PENDING"),
        (("COMPLETING", "FAILED"), "COMPLETING"),
        (("COMPLETED", "FAILED"), "FAILED"),
        (("CANCELLED", "OUT_OF_MEMORY"), "OUT_OF_MEMORY"),
        (("COMPLETED", "COMPLETED"), "COMPLETED"),
    ],
)
def test_of_a_het_job_the_worst_end_counts_once_all_parts_have_ended(
    states: tuple[str, str], folded: str
) -> None:
    parts = [
        row("5", het_job_id="5", het_offset=0, state=states[0], nodes="n1", exit=Exit(code=0)),
        row("6", het_job_id="5", het_offset=1, state=states[1], nodes="n2", exit=Exit(code=4)),
    ]
    jobs, _ = build_queue_jobs(reversed(parts))
    assert (jobs[0].job_id, jobs[0].state, jobs[0].nodes) == ("5", folded, "n1,n2")


def test_a_het_job_has_the_nodes_of_each_component() -> None:
    parts = [
        row("7", het_job_id="5", het_offset=2, state="RUNNING", nodes="n[3-4]"),
        row("5", het_job_id="5", het_offset=0, state="RUNNING", nodes="n1"),
    ]
    assert build_queue_jobs(parts)[0][0].component_nodes == ("n1", "", "n[3-4]")
    left = [row("7", het_job_id="5", het_offset=1, state="RUNNING", nodes="n2")]
    assert build_queue_jobs(left)[0][0].component_nodes == ("", "n2")
    waiting = [row("5", het_job_id="5", het_offset=0), row("6", het_job_id="5", het_offset=1)]
    assert build_queue_jobs(waiting)[0][0].component_nodes == ()


def test_places_and_payers_of_a_het_job_are_those_of_all_its_parts() -> None:
    parts = [
        row("5", het_job_id="5", het_offset=0, partition="debug,long", account="physics"),
        row("6", het_job_id="5", het_offset=1, partition="gpu", account="physics"),
        row("7", het_job_id="5", het_offset=2, partition="long", account="biology"),
    ]
    jobs, _ = build_queue_jobs(parts)
    assert (jobs[0].partition, jobs[0].account) == ("debug,long,gpu", "physics,biology")


def test_two_different_records_for_one_id_make_it_ambiguous_and_nothing_else() -> None:
    jobs, ambiguous = build_queue_jobs([row("7"), row("8"), row("7", uid=0, comment="rb1.forged")])
    assert [job.job_id for job in jobs] == ["8"]
    assert ambiguous == {"7"}


def test_the_same_record_twice_is_one() -> None:
    jobs, ambiguous = build_queue_jobs([row("7"), row("7")])
    assert [job.job_id for job in jobs] == ["7"]
    assert not ambiguous


def test_an_array_with_tasks_of_two_users_is_ambiguous() -> None:
    tasks = [row("7", array_task="0"), row("9", array_job_id="7", array_task="1", uid=2002)]
    jobs, ambiguous = build_queue_jobs(tasks)
    assert len(jobs) == 0
    assert ambiguous == {"7"}


def test_output_paths_are_resolved_but_for_arrays() -> None:
    plain, array = build_queue_jobs([row("7", name="nm"), row("8", array_task="1-3")])[0]
    assert (plain.stdout, plain.stderr) == ("/home/alice/slurm-7.out", "/home/alice/slurm-7.out")
    assert array.stdout == "/home/alice/slurm-%j.out"


def test_a_task_shows_what_its_output_is_named_by_and_nothing_else() -> None:
    """The rest would make of each task of a large array a line in the journal."""

    def task(**facts: str) -> TaskObservation:
        begun = row("8", array_job_id="7", array_task="1", state="RUNNING", nodes="n[3-4]", **facts)
        rows = [replace(row("7", array_task="0,2-9"), stdout=begun.stdout), begun]
        return build_queue_jobs(rows)[0][0].tasks[0]

    assert (task(stdout="/h/%A_%a.out").own_id, task(stdout="/h/%A_%a.out").node) == ("", "")
    assert (task(stdout="/h/%6j.out").own_id, task(stdout="/h/%6j.out").node) == ("8", "")
    named = task(stdout="/h/%A_%a.out", stderr="/h/%N-%a.err")
    assert (named.own_id, named.node) == ("", "n3")


def test_an_unchanged_row_keeps_its_observation_from_look_to_look() -> None:
    folder, rows = QueueJobBuilder(), [row("7"), row("8")]
    first, _ = folder.build(rows)
    second, _ = folder.build([rows[0], replace(rows[1], state="RUNNING")])
    assert second[0] is first[0]
    assert second[1].state == "RUNNING"


def test_tasks_that_were_cancelled_while_they_waited_may_have_lost_their_expression() -> None:
    array = build_queue_jobs(
        [row("7", state="CANCELLED"), row("8", array_job_id="7", array_task="0", state="CANCELLED")]
    )[0][0]
    assert (array.job_id, array.state, array.pending_tasks) == ("7", "CANCELLED", 0)
    assert [task.index for task in array.tasks] == [0]


@pytest.mark.parametrize("held", ["REQUEUE_HOLD", "SPECIAL_EXIT"])
def test_a_part_that_is_held_after_a_requeue_pauses_the_job_unless_another_part_runs(held: str) -> None:
    parts = [
        row("7", array_task="0", state="PENDING"),
        row("8", array_job_id="7", array_task="1", state=held),
    ]
    assert build_queue_jobs(parts)[0][0].state == held
    running = row("9", array_job_id="7", array_task="2", state="RUNNING")
    assert build_queue_jobs([*parts, running])[0][0].state == "RUNNING"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"het_job_id": "7", "is_het": True, "state": "RUNNING"}),
        ({}, {"array_job_id": "7", "array_task": "1", "state": "FAILED"}),
        ({"het_job_id": "7", "is_het": True}, {"array_job_id": "7", "array_task": "1"}),
        ({"array_task": "0"}, {"array_job_id": "7", "array_task": "1", "uid": 2002}),
    ],
    ids=["a component of a plain job", "a task of a plain job", "a task of a het job", "another's task"],
)
def test_parts_that_no_job_has_together_contradict_each_other(
    first: dict[str, object], second: dict[str, object]
) -> None:
    jobs, contradictory = build_queue_jobs([row("7", **first), row("8", **second), row("9")])
    assert [job.job_id for job in jobs] == ["9"]
    assert contradictory == {"7"}
