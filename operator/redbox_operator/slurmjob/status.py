"""Builds the status of a SlurmJob from its row at red-box and from its pods in Kubernetes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from redbox_api.hostlists import fold
from redbox_api.job_parts import JobDetails
from redbox_api.models import FINAL_PHASES, Job, Phase
from redbox_kube.status.conditions import ConditionStatus, NewCondition, conditions_of
from redbox_kube.status.problems import StatusProblem
from redbox_operator.api.conditions import RESULTS_FAILED, UNFINISHED, WAITING
from redbox_operator.api.constants import pod_name
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_status import (
    ArrayStatus,
    CompanionStatus,
    ConditionType,
    JobPhase,
    ResultsStatus,
    SlurmJobStatus,
)
from redbox_operator.api.sylabs import OLD_KINDS, OLD_WORDS
from redbox_operator.companion_pods.plan import FinalMessage
from redbox_operator.slurmjob.attempts import (
    FIRST,
    NEVER_STARTED,
    RETRIES,
    RETRYING,
    SUSPENDED,
    SUSPENDING,
    Attempt,
    CancelState,
    HoldState,
    is_being_suspended,
    is_held_by_slurm,
    may_retry,
    pause_after,
    relaunches_of,
    release_cure,
    was_suspended,
)
from redbox_operator.slurmjob.dependencies import are_met
from redbox_shared.job_end import CONTRADICTION
from redbox_shared.requested_actions import RELEASE

PHASES = {
    Phase.SUBMITTING: JobPhase.PENDING,
    Phase.PENDING: JobPhase.SUBMITTED,
    Phase.RUNNING: JobPhase.RUNNING,
    Phase.SUSPENDED: JobPhase.SUSPENDED,
    Phase.SUCCEEDED: JobPhase.SUCCEEDED,
    Phase.FAILED: JobPhase.FAILED,
    Phase.CANCELLED: JobPhase.CANCELLED,
    Phase.LOST: JobPhase.FAILED,
}
ROW_FIELDS = (*JobDetails.model_fields, "user", "run", "array")
LOG_FIELDS = ("stdout", "stderr")
CANCELLING = "Cancelling"
CANCELLED = "Cancelled"
LIVES_AGAIN = "LivesAgain"
NEVER_SUBMITTED = "It was cancelled before Slurm had it."
RESULTS_REASONS = {"Collected": "ResultsCollected", "Skipped": "ResultsSkipped"}


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """All that a status is built from."""

    job: SlurmJob
    before: SlurmJobStatus
    cluster: str | None  # the SlurmCluster that it was submitted to
    attempt: Attempt
    row: Job | None  # of the attempt, where red-box has it
    final_message: FinalMessage | None  # of its pods together
    pod_problem: StatusProblem | None  # that keeps one of its pods from starting
    companion: CompanionStatus | None
    problem: StatusProblem | None  # that keeps the companion from being created
    now: datetime
    hold: HoldState | None = None  # None: nothing is requested
    endpoint: str | None = None  # or the SlurmEndpoint
    cancel: CancelState | None = None  # None: none is requested

    @property
    def same_attempt(self) -> bool:
        return (self.before.attempts or self.attempt.number) == self.attempt.number


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """Phase, reason and message; `end` is the final result, after the last attempt."""

    phase: JobPhase
    reason: str | None = None
    message: str | None = None
    end: str | None = None
    problem: StatusProblem | None = None  # why it is not in Slurm, or has no row
    retry: str = RETRYING  # the reason of condition Submitted before a retry


def status_of(inputs: StatusInputs) -> SlurmJobStatus:
    """The whole status; unknown fields are left out."""
    outcome = _outcome(inputs)
    fields = _fields_of(inputs.row) if inputs.row else _previous_fields(inputs)
    before = inputs.before
    is_released = inputs.hold is HoldState.RELEASING
    relaunches, relaunched_run = relaunches_of(
        inputs.job.spec, before, inputs.attempt, inputs.row if is_released else None
    )
    status = SlurmJobStatus(
        **fields,
        phase=outcome.phase,
        status=OLD_WORDS[outcome.phase] if inputs.job.resource in OLD_KINDS else outcome.phase,
        reason=outcome.reason,
        message=outcome.message,
        cluster=inputs.cluster,
        endpoint=inputs.endpoint,
        attempts=inputs.attempt.number,
        resumed=inputs.attempt.resumed or None,
        relaunches=relaunches or None,
        relaunched_run=relaunched_run,
        dependencies_met=_dependencies_met(inputs, fields) or None,
        results=(inputs.final_message and inputs.final_message.results)
        or (before.results if inputs.same_attempt else None),
        companion=inputs.companion,
        observed_generation=inputs.job.generation,
    )
    new = list(_conditions(inputs, outcome, status))
    generation = status.observed_generation
    conditions = conditions_of(before.conditions, new, inputs.now.replace(microsecond=0), generation)
    return status.model_copy(update={"conditions": conditions})


# -- phase, reason and message


def _outcome(inputs: StatusInputs) -> JobOutcome:
    if inputs.row is None:
        return _without_row(inputs)
    if inputs.row.phase in FINAL_PHASES:
        return _at_the_end(inputs, inputs.row)
    if inputs.cancel is not None:
        return JobOutcome(PHASES[inputs.row.phase], CANCELLING, inputs.cancel.message)
    announced = inputs.same_attempt and is_being_suspended(inputs.before)
    if announced or (inputs.job.spec.suspend and inputs.row.phase is Phase.RUNNING):
        then = "." if inputs.job.spec.suspend else ", and then starts again."
        return JobOutcome(
            JobPhase.SUSPENDED, SUSPENDING, f"It is being cancelled in Slurm to suspend it{then}"
        )
    return _while_it_lives(inputs, inputs.row)


def _while_it_lives(inputs: StatusInputs, row: Job) -> JobOutcome:
    phase = JobPhase.SUSPENDED if inputs.job.spec.suspend else PHASES[row.phase]
    if inputs.hold is HoldState.BY_SLURM:
        cure = release_cure(inputs.job.name, inputs.job.spec)
        return JobOutcome(JobPhase.SUSPENDED, row.reason, f"{row.message} {cure}")
    if inputs.hold is HoldState.RELEASING and is_held_by_slurm(row):
        return JobOutcome(phase, row.reason, f"{row.message} It is being released.")
    return JobOutcome(phase, row.reason, row.message)


def _at_the_end(inputs: StatusInputs, row: Job) -> JobOutcome:
    if inputs.cancel is not None:
        return _at_the_end_of_a_cancelled(row)
    if was_suspended(inputs.before, row):
        then = "set suspend to false to start it again" if inputs.job.spec.suspend else "it starts again"
        message = f"It was cancelled in Slurm to suspend it: {then}."
        return JobOutcome(JobPhase.SUSPENDED, SUSPENDED, message)
    if may_retry(inputs.job.spec, inputs.attempt, row):
        retry = row.reason if row.no_sign_of_start and row.reason else RETRYING
        return JobOutcome(JobPhase.PENDING, RETRYING, _retry_message(inputs, row), retry=retry)
    outcome = JobOutcome(PHASES[row.phase], row.reason, row.message, end=row.phase.value)
    if row.reason in NEVER_STARTED:
        outcome = replace(outcome, message=_advice(inputs, row))
    return outcome


def _at_the_end_of_a_cancelled(row: Job) -> JobOutcome:
    """No attempt follows, whatever its end was: it may have ended by itself just before."""
    if row.job_id:
        return JobOutcome(PHASES[row.phase], row.reason, row.message, end=row.phase.value)
    problem = StatusProblem(CANCELLED, row.message or NEVER_SUBMITTED, final=True)
    return JobOutcome(PHASES[row.phase], row.reason, problem.message, row.phase.value, problem)


def _retry_message(inputs: StatusInputs, row: Job) -> str:
    attempt, limit = inputs.attempt, inputs.job.spec.backoff_limit
    why = row.message or f"It ended {row.state}."
    due = "at once" if row.no_sign_of_start else f"after {pause_after(attempt):.0f} s"
    return f"{why} Retry {attempt.failures} of {limit} is submitted {due}."


def _advice(inputs: StatusInputs, row: Job) -> str:
    """What is known of the job, and what to type."""
    job = inputs.job
    if row.no_sign_of_start:
        again = "To run it, `kubectl delete slurmjob {0}` and apply it again; with a backoffLimit the next "
        advice = again + "attempt is submitted at once."
    else:
        advice = (
            "`kubectl logs {1}` has its output. To run it again, `kubectl delete slurmjob {0}` and apply it "
            "again; retryLost with a backoffLimit does so by itself."
        )
    pod = pod_name(job.name, inputs.attempt.number)
    return f"{row.message} {advice.format(job.name, pod)}"


def _without_row(inputs: StatusInputs) -> JobOutcome:
    """Before red-box has a row of the attempt, or after the row was forgotten."""
    before = inputs.before if inputs.same_attempt else SlurmJobStatus()
    if inputs.cancel is not None and not before.finished:
        return _cancelled_without_row(inputs.cancel, before)
    if before.finished or before.reason in {RETRYING, SUSPENDED}:
        return _previous_outcome(before)
    refusal = inputs.final_message and inputs.final_message.refusal
    if refusal and not before.job_id:
        return _with_problem(refusal, before)
    problem = inputs.problem or inputs.pod_problem
    if problem is None and before.job_id:
        problem = StatusProblem(
            "NotKnown",
            f"red-box has no record of job {before.job_id} any more, so this status may be old. If its "
            "journal was lost, its administrator can restore the record with `redbox recover`.",
        )
    if problem is None:
        return JobOutcome(JobPhase.SUSPENDED if inputs.job.spec.suspend else JobPhase.PENDING)
    return _with_problem(problem, before)


def _with_problem(problem: StatusProblem, before: SlurmJobStatus) -> JobOutcome:
    if problem.final:
        return JobOutcome(JobPhase.FAILED, problem.reason, problem.message, "Failed", problem)
    if before.job_id:
        return JobOutcome(before.phase, before.reason, problem.message, problem=problem)
    return JobOutcome(JobPhase.PENDING, problem.reason, problem.message, problem=problem)


def _cancelled_without_row(cancel: CancelState, before: SlurmJobStatus) -> JobOutcome:
    """Before it was submitted, or between two attempts."""
    if not cancel.over:
        if before.reason in {RETRYING, SUSPENDED}:
            return replace(_previous_outcome(before), message=cancel.message)
        problem = StatusProblem(CANCELLING, cancel.message)
        return JobOutcome(before.phase, CANCELLING, cancel.message, problem=problem)
    if before.job_id:
        message = f"It was cancelled after attempt {before.attempts or FIRST}, before the next one."
        return JobOutcome(JobPhase.CANCELLED, CANCELLED, message, end=CANCELLED)
    problem = StatusProblem(CANCELLED, NEVER_SUBMITTED, final=True)
    return JobOutcome(JobPhase.CANCELLED, CANCELLED, NEVER_SUBMITTED, CANCELLED, problem)


def _previous_outcome(before: SlurmJobStatus) -> JobOutcome:
    finished = before.condition(ConditionType.FINISHED)
    submitted = before.condition(ConditionType.SUBMITTED)
    end = finished.reason if finished and before.finished else None
    problem = None
    if submitted and submitted.status != ConditionStatus.TRUE and submitted.reason not in {WAITING, *RETRIES}:
        problem = StatusProblem(submitted.reason, submitted.message, final=True)
    retry = submitted.reason if submitted and submitted.reason in RETRIES else RETRYING
    return JobOutcome(before.phase, before.reason, before.message, end, problem, retry)


# -- fields of the row


def _fields_of(row: Job) -> dict[str, object]:
    """The row as status fields; Kubernetes stores times to the second."""
    fields = {name: getattr(row, name) for name in ROW_FIELDS}
    fields |= {name: getattr(row.logs, name) for name in LOG_FIELDS}
    times = {name: at.replace(microsecond=0) for name, at in fields.items() if isinstance(at, datetime)}
    array = ArrayStatus.model_validate(row.array.model_dump()) if row.array else None
    return {**fields, **times, "array": array, "node_list": fold(row.nodes) or None}


def _previous_fields(inputs: StatusInputs) -> dict[str, object]:
    """What the status has of this attempt already."""
    names = (*ROW_FIELDS, *LOG_FIELDS, "node_list")
    return {name: getattr(inputs.before, name) for name in names} if inputs.same_attempt else {}


def _dependencies_met(inputs: StatusInputs, fields: dict[str, object]) -> bool:
    spec = inputs.job.spec
    waits = spec.depends_on or spec.depends_on_jobs
    return bool(waits and (are_met(inputs.before) or fields.get("nodes")))


# -- conditions


def _conditions(inputs: StatusInputs, outcome: JobOutcome, status: SlurmJobStatus) -> Iterator[NewCondition]:
    submitted = _submitted(inputs, outcome, status)
    yield submitted
    if submitted.holds:
        yield _running(outcome, status)
        yield _synced(inputs, outcome, status)
    if inputs.hold is not None:
        yield _held(inputs, inputs.hold)
    if inputs.job.spec.results and submitted.holds:
        yield _results_collected(status.results, inputs.pod_problem if outcome.end else None)
    if outcome.end is None:
        yield _unfinished(inputs)
        return
    message = _previous_end(inputs) or outcome.message or f"Slurm reports {status.state}."
    yield NewCondition(ConditionType.FINISHED, outcome.end, message, holds=True)
    verdict = ConditionType.COMPLETE if outcome.end == "Succeeded" else ConditionType.FAILED
    yield NewCondition(verdict, outcome.end, message, holds=True)


def _unfinished(inputs: StatusInputs) -> NewCondition:
    """Slurm runs it again, or the end that red-box showed was none."""
    row, finished = inputs.row, inputs.before.condition(ConditionType.FINISHED)
    had_ended = finished is not None and (inputs.before.finished or finished.reason == LIVES_AGAIN)
    if row is None or not had_ended or not inputs.same_attempt:
        return NewCondition(ConditionType.FINISHED, UNFINISHED, holds=False)
    message = f"Red-box showed that it had ended, and now shows Slurm job {row.job_id or 'not known'} alive."
    return NewCondition(ConditionType.FINISHED, LIVES_AGAIN, message, holds=False)


def _previous_end(inputs: StatusInputs) -> str | None:
    """The message of an end that the status has: new wording must not rewrite all ended SlurmJobs."""
    finished = inputs.before.condition(ConditionType.FINISHED)
    is_kept = inputs.row is None and inputs.same_attempt and inputs.before.finished
    return finished.message if finished and is_kept else None


def _submitted(inputs: StatusInputs, outcome: JobOutcome, status: SlurmJobStatus) -> NewCondition:
    if outcome.reason == RETRYING:
        return NewCondition(ConditionType.SUBMITTED, outcome.retry, outcome.message, holds=False)
    if status.job_id:
        message = f"Slurm job {status.job_id} of {status.user} on {status.cluster or status.endpoint}"
        return NewCondition(ConditionType.SUBMITTED, "Submitted", message, holds=True)
    if problem := outcome.problem:
        return NewCondition(ConditionType.SUBMITTED, problem.reason, problem.message, holds=False)
    at_redbox = inputs.row is not None and inputs.row.phase is Phase.SUBMITTING
    waits = "red-box has it, and Slurm has not answered yet." if at_redbox else "It is on its way to red-box."
    return NewCondition(ConditionType.SUBMITTED, WAITING, waits, holds=False)


def _running(outcome: JobOutcome, status: SlurmJobStatus) -> NewCondition:
    if outcome.phase is JobPhase.RUNNING:
        where = f"on {status.node_list}" if status.node_list else ""
        return NewCondition(ConditionType.RUNNING, "Running", where, holds=True)
    if outcome.phase is JobPhase.SUSPENDED:
        return NewCondition(ConditionType.RUNNING, "Suspended", outcome.message, holds=False)
    reason = "Ended" if outcome.end else WAITING
    return NewCondition(ConditionType.RUNNING, reason, outcome.message, holds=False)


def _synced(inputs: StatusInputs, outcome: JobOutcome, status: SlurmJobStatus) -> NewCondition:
    problem = inputs.problem or (outcome.problem if inputs.row is None else None)
    if problem and not problem.final:
        return NewCondition(ConditionType.SYNCED, problem.reason, problem.message, holds=False)
    if inputs.row is not None and inputs.row.reason == CONTRADICTION:
        return NewCondition(ConditionType.SYNCED, CONTRADICTION, inputs.row.message, holds=False)
    if status.stale_since:
        message = f"Slurm has not reported the job's state since {status.stale_since:%Y-%m-%d %H:%M:%S} UTC"
        return NewCondition(ConditionType.SYNCED, "Stale", message, holds=False)
    return NewCondition(ConditionType.SYNCED, "Synced", holds=True)


def _held(inputs: StatusInputs, hold: HoldState) -> NewCondition:
    why = "suspend" if inputs.job.spec.suspend else "hold"
    message = f"Slurm holds it: {why} is true." if hold is HoldState.HELD else ""
    requested = inputs.job.annotations.get(RELEASE)
    if requested and hold in {HoldState.RELEASING, HoldState.RELEASED}:
        message = f"Its release was requested: {requested}"
    if inputs.row is not None and is_held_by_slurm(inputs.row):
        message = inputs.row.message or message
    return NewCondition(
        ConditionType.HELD, hold.value, message, holds=hold in {HoldState.HELD, HoldState.BY_SLURM}
    )


def _results_collected(results: ResultsStatus | None, problem: StatusProblem | None) -> NewCondition:
    if results is None:
        message = "They are copied after the job has ended."
        if problem is not None:
            message = f"They are still in the job's directory on the Slurm cluster: {problem.message}."
        return NewCondition(ConditionType.RESULTS_COLLECTED, WAITING, message, holds=False)
    reason = RESULTS_REASONS.get(results.outcome, RESULTS_FAILED)
    counted = f"{results.files or 0} files, {results.bytes or 0} bytes"
    message = results.message or counted
    if reason == RESULTS_FAILED:
        message = f"{message}; copied: {counted}"
    holds = results.outcome == "Collected"
    return NewCondition(ConditionType.RESULTS_COLLECTED, reason, message, holds=holds)
