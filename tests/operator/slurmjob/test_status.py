"""A SlurmJob's status from what red-box and Kubernetes say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redbox_api.models import ArrayCounts, Job, Phase
from redbox_kube.status.conditions import ConditionStatus
from redbox_kube.status.problems import StatusProblem
from redbox_operator.api.conditions import condition_events
from redbox_operator.api.slurmjob_status import ConditionType, JobPhase, ResultsStatus, SlurmJobStatus
from redbox_operator.companion_pods.plan import FinalMessage
from redbox_operator.slurmjob.attempts import Attempt, HoldState
from redbox_operator.slurmjob.status import status_of
from tests.operator.factories import NOON, job_row, slurm_job, status_inputs


def said(status: SlurmJobStatus) -> dict[str, tuple[str, str]]:
    return {item.type: (item.status.value, item.reason) for item in status.conditions}


def test_before_anything_is_known_it_is_pending_on_its_way() -> None:
    status = status_of(status_inputs())
    assert (status.phase, status.status) == (JobPhase.PENDING, JobPhase.PENDING)
    assert said(status) == {"Submitted": ("False", "Waiting"), "Finished": ("False", "Unfinished")}


@pytest.mark.parametrize(
    ("phase", "shown"),
    [
        (Phase.SUBMITTING, "Pending"),
        (Phase.PENDING, "Submitted"),
        (Phase.RUNNING, "Running"),
        (Phase.SUSPENDED, "Suspended"),
        (Phase.SUCCEEDED, "Succeeded"),
        (Phase.FAILED, "Failed"),
        (Phase.CANCELLED, "Cancelled"),
        (Phase.LOST, "Failed"),
    ],
)
def test_phases_are_told_in_both_words(phase: Phase, shown: str) -> None:
    written = status_of(status_inputs(job_row(phase))).written()
    assert (written["phase"], written["status"]) == (shown, shown)


@pytest.mark.parametrize(
    ("phase", "verdict"),
    [
        (Phase.SUCCEEDED, ("Complete", "Succeeded")),
        (Phase.FAILED, ("Failed", "Failed")),
        (Phase.CANCELLED, ("Failed", "Cancelled")),
        (Phase.LOST, ("Failed", "Lost")),
    ],
)
def test_each_end_is_finished_and_one_verdict(phase: Phase, verdict: tuple[str, str]) -> None:
    conditions = said(status_of(status_inputs(job_row(phase))))
    kind, reason = verdict
    assert conditions["Finished"] == ("True", reason)
    assert conditions[kind] == ("True", reason)
    assert len({"Complete", "Failed"} & conditions.keys()) == 1


def test_what_slurm_says_is_told_and_what_is_unknown_is_left_out() -> None:
    row = job_row(Phase.RUNNING, state="RUNNING", nodes=["n1", "n2"], partition="debug")
    written = status_of(status_inputs(row)).written()
    assert (written["state"], written["jobID"], written["nodes"]) == ("RUNNING", "7", ["n1", "n2"])
    assert written["companion"] == {"name": "cow-job", "uid": "pod-uid", "attempt": 1}
    assert not {"exitCode", "signal", "reason"} & written.keys()


def test_exit_code_zero_is_told() -> None:
    assert status_of(status_inputs(job_row(Phase.SUCCEEDED, exit_code=0))).written()["exitCode"] == 0


def test_an_array_is_counted() -> None:
    counts = ArrayCounts(total=20, running=3, succeeded=16, failed=1)
    array = status_of(status_inputs(job_row(Phase.RUNNING, array=counts))).array
    assert array is not None
    assert (array.total, array.running, array.succeeded, array.failed) == (20, 3, 16, 1)


def test_a_stale_truth_says_since_when() -> None:
    status = status_of(status_inputs(job_row(Phase.RUNNING, stale_since=NOON)))
    assert status.stale_since == NOON
    assert said(status)["Synced"] == ("False", "Stale")


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    first = status_of(status_inputs(job_row(Phase.RUNNING)))
    later = NOON + timedelta(minutes=5)
    second = status_of(status_inputs(job_row(Phase.RUNNING, nodes=["n9"]), before=first, now=later))
    ended = status_of(status_inputs(job_row(Phase.SUCCEEDED), before=second, now=later))
    times = {item.type: item.last_transition_time for item in ended.conditions}
    assert times["Submitted"] == NOON
    assert times["Running"] == later


def test_nothing_new_is_no_new_status() -> None:
    first = status_of(status_inputs(job_row(Phase.RUNNING)))
    again = status_of(status_inputs(job_row(Phase.RUNNING), before=first, now=NOON + timedelta(hours=1)))
    assert again == first
    assert SlurmJobStatus.model_validate(first.written()) == first


def test_a_refusal_ends_it_with_the_reason() -> None:
    status = status_of(status_inputs(final_message=FinalMessage(refused="invalid partition")))
    assert (status.phase, status.message) == (JobPhase.FAILED, "invalid partition")
    assert said(status)["Submitted"] == ("False", "Refused")
    assert said(status)["Failed"] == ("True", "Failed")


def test_a_red_box_that_does_not_know_a_field_is_older_than_the_operator() -> None:
    refused = "red-box refuses the request: arguments is not a field of this request"
    status = status_of(status_inputs(final_message=FinalMessage(refused=refused)))
    assert said(status)["Submitted"] == ("False", "RedboxTooOld")
    assert (status.phase, said(status)["Failed"]) == (JobPhase.FAILED, ("True", "Failed"))
    assert "arguments is not a field" in str(status.message)
    assert "upgrade red-box" in str(status.message)


def test_a_refusal_of_red_box_is_not_believed_once_there_is_a_job() -> None:
    status = status_of(status_inputs(job_row(Phase.RUNNING), final_message=FinalMessage(refused="forged")))
    assert status.phase is JobPhase.RUNNING


def test_a_problem_that_can_be_cured_leaves_it_pending_with_the_cure() -> None:
    status = status_of(status_inputs(companion=None, problem=StatusProblem("NoSuchCluster", "create it")))
    assert (status.phase, status.reason, status.message) == (JobPhase.PENDING, "NoSuchCluster", "create it")
    assert not status.finished


def test_a_problem_that_nothing_cures_is_the_end() -> None:
    status = status_of(
        status_inputs(companion=None, problem=StatusProblem("NameTooLong", "shorter", final=True))
    )
    assert status.finished
    assert status.phase is JobPhase.FAILED
    again = status_of(status_inputs(companion=None, before=status))
    assert again == status


def test_a_finished_job_stays_as_it_was_when_its_row_is_no_longer_kept() -> None:
    ended = status_of(status_inputs(job_row(Phase.FAILED, exit_code=3, message="It exited with code 3.")))
    assert status_of(status_inputs(before=ended)) == ended


def test_a_finished_status_in_the_words_of_an_earlier_release_is_not_written_again() -> None:
    status = status_of(status_inputs(job_row(Phase.SUCCEEDED, state="COMPLETED")))
    written = str(status.model_dump_json(by_alias=True)).replace(
        "Slurm reports COMPLETED", "Slurm says COMPLETED"
    )
    before = SlurmJobStatus.model_validate_json(written)
    assert before != status
    assert status_of(status_inputs(before=before)) == before


def test_a_job_that_lives_again_is_not_finished_any_more() -> None:
    ended = status_of(status_inputs(job_row(Phase.FAILED, state="NODE_FAIL")))
    again = status_of(status_inputs(job_row(Phase.RUNNING, run=2), before=ended))
    assert (again.phase, again.finished, again.run) == (JobPhase.RUNNING, False, 2)
    assert again.condition(ConditionType.FAILED) is None


def test_a_job_that_red_box_forgot_is_said_to_be_unknown_and_not_ended() -> None:
    running = status_of(status_inputs(job_row(Phase.RUNNING)))
    status = status_of(status_inputs(before=running))
    assert status.phase is JobPhase.RUNNING
    assert said(status)["Synced"] == ("False", "NotKnown")


def test_a_failure_with_retries_left_is_pending() -> None:
    spec = slurm_job(backoffLimit=1)
    status = status_of(status_inputs(job_row(Phase.FAILED, message="It exited with code 3."), job=spec))
    assert (status.phase, status.reason) == (JobPhase.PENDING, "Retrying")
    assert said(status)["Submitted"] == ("False", "Retrying")
    assert not status.finished


def test_the_last_failure_is_the_end() -> None:
    spec = slurm_job(backoffLimit=1)
    status = status_of(status_inputs(job_row(Phase.FAILED), job=spec, attempt=Attempt(2, 0)))
    assert (status.phase, status.attempts, status.finished) == (JobPhase.FAILED, 2, True)


@pytest.mark.parametrize("phase", [Phase.CANCELLED, Phase.LOST])
def test_only_failures_are_tried_again(phase: Phase) -> None:
    assert status_of(status_inputs(job_row(phase), job=slurm_job(backoffLimit=5))).finished


def test_suspending_a_running_job_is_announced_before_it_is_cancelled() -> None:
    status = status_of(status_inputs(job_row(Phase.RUNNING), job=slurm_job(suspend=True)))
    assert (status.phase, status.reason) == (JobPhase.SUSPENDED, "Suspending")


def test_the_cancellation_that_was_announced_is_no_end() -> None:
    announced = status_of(status_inputs(job_row(Phase.RUNNING), job=slurm_job(suspend=True)))
    status = status_of(status_inputs(job_row(Phase.CANCELLED), job=slurm_job(suspend=True), before=announced))
    assert (status.phase, status.reason, status.finished) == (JobPhase.SUSPENDED, "Suspended", False)


@pytest.mark.parametrize("state", ["SUSPENDED", "STOPPED", "REQUEUE_HOLD", "SPECIAL_EXIT"])
@pytest.mark.parametrize("reason", [None, "JobHeldUser", "JobHeldAdmin"])
def test_the_cancellation_of_what_slurm_itself_suspended_is_the_end(state: str, reason: str | None) -> None:
    stopped = status_of(status_inputs(job_row(Phase.SUSPENDED, state=state, reason=reason)))
    assert stopped.phase is JobPhase.SUSPENDED
    status = status_of(status_inputs(job_row(Phase.CANCELLED), before=stopped))
    assert (status.phase, status.finished) == (JobPhase.CANCELLED, True)


def test_the_cancellation_of_a_suspended_job_that_waits_is_the_end() -> None:
    """It is held, and its cancel was not announced."""
    held = status_of(status_inputs(job_row(Phase.PENDING, reason="JobHeldUser"), job=slurm_job(suspend=True)))
    status = status_of(status_inputs(job_row(Phase.CANCELLED), job=slurm_job(suspend=True), before=held))
    assert (status.phase, status.finished) == (JobPhase.CANCELLED, True)


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.PENDING, Phase.SUSPENDED])
@pytest.mark.parametrize("suspend", [True, False])
def test_a_cancellation_that_was_announced_is_not_taken_back(phase: Phase, *, suspend: bool) -> None:
    announced = status_of(status_inputs(job_row(Phase.RUNNING), job=slurm_job(suspend=True)))
    spec = slurm_job(suspend=suspend)
    status = status_of(status_inputs(job_row(phase), job=spec, before=announced))
    assert (status.phase, status.reason) == (JobPhase.SUSPENDED, "Suspending")
    ended = status_of(status_inputs(job_row(Phase.CANCELLED), job=spec, before=status))
    assert (ended.phase, ended.reason, ended.finished) == (JobPhase.SUSPENDED, "Suspended", False)


def test_one_that_was_suspended_and_lives_again_is_told_as_it_is() -> None:
    announced = status_of(status_inputs(job_row(Phase.RUNNING), job=slurm_job(suspend=True)))
    suspended = status_of(
        status_inputs(job_row(Phase.CANCELLED), job=slurm_job(suspend=True), before=announced)
    )
    assert status_of(status_inputs(job_row(Phase.RUNNING), before=suspended)).phase is JobPhase.RUNNING


def test_a_cancellation_that_nobody_announced_is_the_end() -> None:
    running = status_of(status_inputs(job_row(Phase.RUNNING)))
    status = status_of(status_inputs(job_row(Phase.CANCELLED), before=running))
    assert (status.phase, status.finished) == (JobPhase.CANCELLED, True)


def test_holding_is_a_condition() -> None:
    status = status_of(status_inputs(job_row(Phase.PENDING), job=slurm_job(hold=True), hold=HoldState.HELD))
    assert said(status)["Held"] == ("True", "Held")


@pytest.mark.parametrize(
    ("row", "words"),
    [(None, "on its way to red-box"), (job_row(Phase.SUBMITTING, job_id=None), "Slurm has not answered")],
)
def test_a_job_that_is_not_in_slurm_says_who_is_waited_for(row: Job | None, words: str) -> None:
    submitted = status_of(status_inputs(row)).condition(ConditionType.SUBMITTED)
    assert submitted is not None
    assert words in submitted.message


RESULTS = {"from": ["out"], "volume": {"persistentVolumeClaim": {"claimName": "c"}}}


@pytest.mark.parametrize(
    ("noted", "condition", "words"),
    [
        (None, ("False", "Waiting"), "after the job has ended"),
        (
            ResultsStatus(outcome="Collected", files=3, bytes=9),
            ("True", "ResultsCollected"),
            "3 files, 9 bytes",
        ),
        (ResultsStatus(outcome="Skipped", message="it failed"), ("False", "ResultsSkipped"), "it failed"),
        (
            ResultsStatus(outcome="Failed", files=1, bytes=2, message="a: full"),
            ("False", "ResultsFailed"),
            "a: full; copied: 1 files, 2 bytes",
        ),
    ],
)
def test_what_became_of_the_results_is_a_condition_and_never_the_jobs_end(
    noted: ResultsStatus | None, condition: tuple[str, str], words: str
) -> None:
    word = FinalMessage(results=noted)
    status = status_of(
        status_inputs(job_row(Phase.SUCCEEDED), job=slurm_job(results=RESULTS), final_message=word)
    )
    assert said(status)["ResultsCollected"] == condition
    collected = status.condition(ConditionType.RESULTS_COLLECTED)
    assert collected is not None
    assert words in collected.message
    assert status.phase is JobPhase.SUCCEEDED


def test_results_that_cannot_be_copied_say_where_they_are_and_why() -> None:
    problem = StatusProblem("Unschedulable", 'persistentvolumeclaim "c" not found')
    ended = status_inputs(job_row(Phase.SUCCEEDED), job=slurm_job(results=RESULTS), pod_problem=problem)
    collected = status_of(ended).condition(ConditionType.RESULTS_COLLECTED)
    assert collected is not None
    assert (collected.reason, collected.status) == ("Waiting", ConditionStatus.FALSE)
    assert "in the job's directory" in collected.message
    assert 'persistentvolumeclaim "c" not found' in collected.message


def test_results_that_nobody_wants_are_no_condition() -> None:
    assert "ResultsCollected" not in said(status_of(status_inputs(job_row(Phase.SUCCEEDED))))


# ---------------------------------------------------------------------------------------------- events


def events_between(before: SlurmJobStatus, after: SlurmJobStatus) -> list[tuple[str, str]]:
    return [(item.severity, item.reason) for item in condition_events(before.conditions, after.conditions)]


def test_an_event_tells_what_leaves_the_ordinary_course_of_a_job_and_conditions_have_the_rest() -> None:
    new = status_of(status_inputs())
    submitted = status_of(status_inputs(job_row(Phase.PENDING), before=new))
    running = status_of(status_inputs(job_row(Phase.RUNNING), before=submitted))
    succeeded = status_of(status_inputs(job_row(Phase.SUCCEEDED), before=running))
    failed = status_of(status_inputs(job_row(Phase.FAILED), before=running))
    for before, after in ((SlurmJobStatus(), new), (new, submitted), (submitted, running)):
        assert events_between(before, after) == []
    assert events_between(running, succeeded) == []
    assert submitted.holds(ConditionType.SUBMITTED)
    assert running.holds(ConditionType.RUNNING)
    assert events_between(running, failed) == [("Warning", "Failed")]
    assert events_between(failed, failed) == []


def test_the_return_to_the_ordinary_course_is_an_event() -> None:
    problem = StatusProblem("CompanionImage", "cannot be pulled")
    stuck = status_of(status_inputs(pod_problem=problem))
    submitted = status_of(status_inputs(job_row(Phase.PENDING), before=stuck))
    suspended = status_of(status_inputs(job_row(Phase.SUSPENDED), before=submitted))
    running = status_of(status_inputs(job_row(Phase.RUNNING), before=suspended))
    assert events_between(stuck, submitted) == [("Normal", "Submitted")]
    assert events_between(submitted, suspended) == [("Normal", "Suspended")]
    assert events_between(suspended, running) == [("Normal", "Running")]


def test_what_is_never_submitted_is_one_event() -> None:
    refused = status_of(status_inputs(final_message=FinalMessage(refused="invalid partition")))
    assert events_between(status_of(status_inputs()), refused) == [("Warning", "Refused")]


def test_results_are_told_once_they_came_or_did_not() -> None:
    spec = slurm_job(results=RESULTS)
    ended = status_of(status_inputs(job_row(Phase.SUCCEEDED), job=spec))
    word = FinalMessage(results=ResultsStatus(outcome="Failed", message="a: full"))
    failed = status_of(status_inputs(job_row(Phase.SUCCEEDED), job=spec, before=ended, final_message=word))
    assert events_between(SlurmJobStatus(), ended) == []
    assert events_between(ended, failed) == [("Warning", "ResultsFailed")]


def test_a_retry_is_told_as_a_retry() -> None:
    running = status_of(status_inputs(job_row(Phase.RUNNING), job=slurm_job(backoffLimit=1)))
    retrying = status_of(status_inputs(job_row(Phase.FAILED), job=slurm_job(backoffLimit=1), before=running))
    assert events_between(running, retrying) == [("Warning", "Retrying")]
