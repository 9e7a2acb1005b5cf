from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.core.observations import Observation, TaskObservation
from redbox.jobs.poll.missing_jobs import AbsenceEvidence, after_absence, latest_row, may_be_unsaved
from redbox.jobs.poll.poller import is_absent
from redbox.jobs.queue_snapshot import SnapshotIndex, SnapshotMatch
from redbox.jobs.record.codec import from_text, to_text
from redbox.jobs.record.forgotten import RestartEvidence
from redbox.jobs.record.messages import CANCELLED_IN_SLURM
from redbox.jobs.record.state_machine import to_cancel
from redbox.jobs.submit.duplicates import jobs_with_mark
from redbox.slurm.text.states import JOB_STATES
from redbox_api.models import Phase
from tests.redbox.jobs.factories import MACHINE, NOW, RECORD, after, seen


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        *(
            (state, Phase.PENDING)
            for state in ("PENDING", "CONFIGURING", "REQUEUED", "REVOKED", "POWER_UP_NODE")
        ),
        *(
            (state, Phase.RUNNING)
            for state in ("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING")
        ),
        *((state, Phase.SUSPENDED) for state in ("SUSPENDED", "STOPPED", "SPECIAL_EXIT", "REQUEUE_HOLD")),
        ("COMPLETED", Phase.SUCCEEDED),
        ("CANCELLED", Phase.CANCELLED),
        *((state, Phase.FAILED) for state in ("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE")),
    ],
)
def test_each_of_slurms_states_has_its_phase_at_once(state: str, phase: Phase) -> None:
    assert after(seen(state)).phase is phase


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "BOOT_FAIL"])
def test_a_state_that_slurm_may_take_back_is_final_only_when_it_can_not(state: str) -> None:
    assert not after(seen("RUNNING"), seen(state)).final
    assert after(seen("RUNNING"), seen(state, requeue=False)).final
    assert after(seen("RUNNING"), seen(state, live=False)).final
    assert not after(seen(state), seen(state), seconds=29).final
    assert after(seen(state), seen(state), seconds=30).final
    assert after(
        seen(state), seen("PENDING", restarts=1), seen(state), seconds=29
    ).ending_since == NOW + timedelta(seconds=58)


def test_a_state_that_nobody_knows_changes_nothing() -> None:
    record = after(seen("RUNNING"), seen("DANCING"))
    assert (record.phase, record.status.state) == (Phase.RUNNING, "DANCING")
    assert JOB_STATES.phase_of("DANCING") is None


def test_a_job_that_lives_again_is_the_next_run_and_says_nothing_of_its_last_end() -> None:
    record = after(seen("RUNNING", nodes="n1"), seen("FAILED", exit_code=9), seen("PENDING", restarts=1))
    assert (record.phase, record.run, record.final_at, record.status.exit_code) == (
        Phase.PENDING,
        2,
        None,
        None,
    )
    assert record.status.nodes == ""


def test_a_requeue_is_one_more_run_although_slurm_moves_the_start_while_the_job_completes() -> None:
    """As squeue 24.11 showed it, poll by poll."""
    running = seen("RUNNING", started_at=NOW)
    completing = [
        seen("COMPLETING", restarts=1, started_at=NOW + timedelta(seconds=second)) for second in (2, 3, 4)
    ]
    waiting = seen("PENDING", restarts=1, reason="BeginTime")
    record = after(running, *completing, waiting)
    assert (record.run, record.warnings) == (2, ())
    record = after(seen("RUNNING", restarts=1, started_at=NOW + timedelta(seconds=9)), record=record)
    assert (record.run, record.warnings) == (2, ())


def test_a_job_that_was_thought_lost_and_is_seen_again_is_the_same_run() -> None:
    gone = replace(RECORD, phase=Phase.LOST, final_at=NOW)
    record = after(seen("RUNNING"), record=gone)
    assert (record.phase, record.run) == (Phase.RUNNING, 1)


def test_a_job_that_was_deleted_when_it_was_lost_ends_as_slurm_shows_it_after_all() -> None:
    lost = to_cancel(replace(RECORD, phase=Phase.LOST, final_at=NOW), NOW, force=False)
    elsewhere = after(seen("CANCELLED"), record=lost)
    assert (elsewhere.phase, elsewhere.message) == (Phase.CANCELLED, CANCELLED_IN_SLURM)
    by_redbox = after(seen("RUNNING"), seen("CANCELLED"), record=lost)
    assert (by_redbox.phase, by_redbox.message) == (Phase.CANCELLED, "It was cancelled through red-box.")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"state": "FAILED", "exit_code": 0, "signal": 53, "stdout": "/x/o"},
            "cannot enter the working directory or write the output file (/x/o)",
        ),
        ({"state": "FAILED", "exit_code": 53}, "exited with code 53"),
        ({"state": "FAILED", "exit_code": 125}, "of a container that its image could not be pulled"),
        ({"state": "FAILED", "exit_code": 127}, "not found (exit code 127"),
        ({"state": "FAILED", "exit_code": 0, "signal": 9}, "SIGKILL (9)"),
        ({"state": "FAILED", "exit_code": 0, "signal": 15}, "SIGTERM (15)"),
        ({"state": "TIMEOUT"}, "longer than its time limit"),
        ({"state": "OUT_OF_MEMORY", "exit_code": 0, "signal": 125}, "more memory"),
        ({"state": "NODE_FAIL", "nodes": "n2", "requeue": False}, "A node that it ran on failed (n2)"),
        ({"state": "CANCELLED", "cancelled_by": 0}, "by an administrator"),
        ({"state": "CANCELLED", "cancelled_by": 2001}, "by alice"),
        ({"state": "CANCELLED", "cancelled_by": 2002}, "uid 2002"),
        (
            {"state": "PENDING", "reason": "PartitionTimeLimit", "partition": "debug"},
            "wait for ever: it asks for more time than partition debug",
        ),
        ({"state": "PENDING", "reason": "(ReqNodeNotAvail, UnavailableNodes:n1)"}, "UnavailableNodes:n1"),
        (
            {"state": "PENDING", "reason": "AssocGrpCpuLimit", "account": "physics"},
            "limit of account physics",
        ),
        ({"state": "PENDING", "reason": "QOSMaxJobsPerUserLimit", "qos": "short"}, "limit of QOS short"),
        ({"state": "PENDING", "reason": "SomethingNew"}, "Slurm says: SomethingNew"),
        ({"state": "REQUEUE_HOLD", "reason": "JobHeldUser"}, "held by its user"),
        ({"state": "PENDING", "reason": "launch failed requeued held"}, "A node could not launch it"),
        ({"state": "REQUEUE_HOLD", "reason": "JobHoldMaxRequeue"}, "holds it until it is released"),
    ],
)
def test_why_is_said_in_words(facts: dict[str, Any], words: str) -> None:
    assert words in (after(seen(**facts)).message or "")


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_where_the_state_says_it_all_nothing_is_added(state: str) -> None:
    assert after(seen(state)).message is None


def tasks(*states: str) -> tuple[TaskObservation, ...]:
    return tuple(TaskObservation(index, f"7_{index}", state) for index, state in enumerate(states))


def test_tasks_that_ended_unseen_are_not_taken_for_an_arrays_success() -> None:
    waiting = seen("PENDING", array_size=10, pending_tasks=10)
    done = tuple(TaskObservation(index, f"7_{index}", "COMPLETED", 0) for index in range(10))
    last_two = seen("COMPLETED", array_size=2, tasks=done[8:])  # the queue has forgotten the rest
    record = after(waiting, last_two)
    assert not record.final
    failed = (*(replace(task, state="FAILED", exit_code=1) for task in done[:8]), *done[8:])
    record = after(seen("FAILED", live=False, array_size=10, tasks=failed), record=record)
    assert (record.phase, MACHINE.count_tasks(record.status).failed) == (Phase.FAILED, 8)


def test_an_array_is_counted_by_its_tasks_and_what_is_not_split_off_waits() -> None:
    record = after(
        seen("RUNNING", array_size=10, pending_tasks=7, tasks=tasks("RUNNING", "COMPLETED", "FAILED"))
    )
    counts = MACHINE.count_tasks(record.status)
    assert (counts.total, counts.pending, counts.running, counts.succeeded, counts.failed) == (10, 7, 1, 1, 1)
    assert record.phase is Phase.RUNNING


def test_tasks_that_the_queue_has_forgotten_keep_their_last_state() -> None:
    first = seen("RUNNING", array_size=2, tasks=tasks("FAILED", "RUNNING"))
    second = seen("RUNNING", array_size=2, tasks=tasks("FAILED", "COMPLETED")[1:])
    record = after(first, second)
    assert [task.state for task in record.status.tasks] == ["FAILED", "COMPLETED"]
    assert (record.phase, record.message) == (Phase.FAILED, "Not all tasks of the array succeeded.")


def test_a_task_that_waits_again_among_those_that_never_began_is_counted_once() -> None:
    first = seen(
        "RUNNING", array_size=4, pending_tasks=2, waiting=(range(2, 4),), tasks=tasks("FAILED", "RUNNING")
    )
    again = (range(1), range(2, 4))
    second = replace(first, pending_tasks=3, waiting=again, tasks=first.tasks[1:])
    counts = MACHINE.count_tasks(after(first, second).status)
    assert (counts.total, counts.pending, counts.running, counts.failed) == (4, 3, 1, 0)


@pytest.mark.parametrize(
    ("waited", "row", "accounting", "phase"),
    [
        (0, None, True, Phase.PENDING),
        (599, None, True, Phase.PENDING),
        (600, None, True, Phase.LOST),
        (599, seen("RUNNING", live=False), True, Phase.PENDING),
        (600, seen("RUNNING", live=False), True, Phase.LOST),
        (0, seen("COMPLETED", live=False), True, Phase.SUCCEEDED),
        (0, seen("NODE_FAIL", live=False), True, Phase.FAILED),
        (0, None, False, Phase.PENDING),
        (2, None, False, Phase.LOST),
    ],
)
def test_absence_becomes_loss_only_slowly(
    waited: float, row: Observation | None, *, accounting: bool, phase: Phase
) -> None:
    record = replace(RECORD, absent_since=NOW)
    evidence = AbsenceEvidence(row, accounting, stranger=False)
    assert after_absence(record, evidence, NOW + timedelta(seconds=waited), MACHINE).phase is phase


def test_a_pod_whose_end_is_in_the_accounting_is_not_forgotten_before_its_last_report_is_read() -> None:
    record = replace(RECORD, is_pod=True, absent_since=NOW)
    row, restart = seen("COMPLETED", live=False), RestartEvidence(answers_for_s=3600, output_exists=False)
    evidence = AbsenceEvidence(row, accounting=True, stranger=False, restart=restart)
    ended = after_absence(record, evidence, NOW + timedelta(seconds=300), MACHINE)
    assert (ended.awaits_report, ended.final) == (True, False)
    assert MACHINE.without_more_reports(ended, NOW).phase is Phase.SUCCEEDED


STATES = st.sampled_from(
    ["PENDING", "RUNNING", "COMPLETING", "COMPLETED", "FAILED", "NODE_FAIL", "REQUEUED", "ODD"]
)


@given(st.lists(st.tuples(STATES, st.integers(0, 3), st.booleans()), max_size=12))
def test_whatever_is_seen_a_record_is_consistent_and_survives_the_journal(
    looks: list[tuple[str, int, bool]],
) -> None:
    record = RECORD
    for number, (state, restarts, live) in enumerate(looks):
        before = record
        record = after(seen(state, restarts=restarts, live=live), record=record)
        assert record.run >= before.run
        assert record.final == (record.final_at is not None)
        assert record.in_queue == live
        assert from_text(record.key, number, to_text(record)) == replace(record, revision=number)


def test_a_row_of_another_user_under_the_same_id_with_the_same_mark_is_not_the_jobs() -> None:
    forged = replace(seen("COMPLETED", live=False), uid=2002)
    assert latest_row(RECORD, [forged]) is None
    assert latest_row(RECORD, [forged, seen("FAILED", live=False)]) == seen("FAILED", live=False)


def test_a_row_without_its_mark_is_the_jobs_if_it_was_submitted_at_that_moment() -> None:
    row = replace(seen("COMPLETED", live=False, submitted_at=NOW), mark="")
    known = after(seen("RUNNING", submitted_at=NOW))
    assert latest_row(known, [row]) == row
    assert latest_row(known, [replace(row, submitted_at=NOW + timedelta(seconds=1))]) is None
    assert latest_row(RECORD, [row]) is None


def test_absence_counts_only_in_a_whole_look_that_began_after_the_job_was_bound() -> None:
    later = NOW + timedelta(seconds=1)
    assert is_absent(RECORD, SnapshotMatch(), SnapshotIndex(later, complete=True))
    assert not is_absent(RECORD, SnapshotMatch(), SnapshotIndex(NOW, complete=True))
    assert not is_absent(RECORD, SnapshotMatch(), SnapshotIndex(later, complete=False))
    assert not is_absent(RECORD, SnapshotMatch(unclear=True), SnapshotIndex(later, complete=True))
    assert not is_absent(RECORD, SnapshotMatch(job=seen("RUNNING")), SnapshotIndex(later, complete=True))


def test_rows_that_slurm_left_of_an_earlier_refused_submit_are_not_the_intents_job() -> None:
    old = seen("FAILED", live=False, submitted_at=NOW - timedelta(hours=1))
    new = seen("RUNNING", live=False, submitted_at=NOW)
    assert jobs_with_mark(RECORD, [old, new]) == [new]


@pytest.mark.parametrize("field", ["last_submit_at", "unanswered_at"])
def test_a_job_that_was_bound_long_after_its_submit_was_saved_before(field: str) -> None:
    """It may come back, and run beside a next attempt."""
    young, long_before = NOW - timedelta(seconds=5), NOW - timedelta(minutes=5)
    record = replace(RECORD, bound_at=young, last_submit_at=young, unanswered_at=None, absent_since=None)
    assert may_be_unsaved(record, NOW)
    assert not may_be_unsaved(replace(record, **{field: long_before}), NOW)  # type: ignore[arg-type]
