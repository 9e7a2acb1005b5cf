"""A SlurmJob's status, whole, from what red-box says of the job and Kubernetes of its companion. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from redbox_api.models import FINAL_PHASES, Job, Phase
from redbox_api.node_lists import folded
from redbox_operator.api.conditions import RESULTS_FAILED, WAITING, NewCondition, conditions_of
from redbox_operator.api.problems import StatusProblem
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
from redbox_operator.companion.plan import FinalMessage
from redbox_operator.dependencies import are_met
from redbox_operator.slurmjob.attempts import (
    RETRYING,
    SUSPENDED,
    SUSPENDING,
    Attempt,
    is_being_suspended,
    may_retry,
    pause_after,
    was_suspended,
)

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
OF_ROW = (
    *("state", "job_id", "partition", "user", "nodes", "exit_code", "signal", "submitted_at", "started_at"),
    *("ended_at", "node_list", "stale_since", "run", "array", "working_directory"),
)
RESULTS_REASONS = {"Collected": "ResultsCollected", "Skipped": "ResultsSkipped"}
UNFINISHED = "Unfinished"


class HoldState(StrEnum):
    """What Slurm is asked about a job that waits; the reason of condition Held."""

    HELD = "Held"
    RELEASING = "Releasing"
    RELEASED = "Released"


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """All that a status is made from. `row` is of the attempt, None where red-box has none."""

    job: SlurmJob
    before: SlurmJobStatus
    cluster: str | None
    attempt: Attempt
    row: Job | None
    word: FinalMessage | None  # of its pods together
    trouble: StatusProblem | None  # that keeps one of them from starting
    recorded: CompanionStatus | None
    problem: StatusProblem | None
    now: datetime
    held: HoldState | None = None  # what Slurm is asked; None: nothing

    @property
    def same_attempt(self) -> bool:
        return (self.before.attempts or self.attempt.number) == self.attempt.number


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """Where the job is, in our word, and in words. `end` is how all came to its end, if it has."""

    phase: JobPhase
    reason: str | None = None
    message: str | None = None
    end: str | None = None
    problem: StatusProblem | None = None  # why it is not in Slurm, or not seen there


def status_of(facts: StatusInputs) -> SlurmJobStatus:
    """Everything that is known; what is not known is left out."""
    outlook = _outlook(facts)
    told = _of_row(facts.row) if facts.row else _kept(facts)
    before = facts.before
    status = SlurmJobStatus(
        **told,
        phase=outlook.phase,
        status=OLD_WORDS[outlook.phase] if facts.job.resource in OLD_KINDS else outlook.phase,
        reason=outlook.reason,
        message=outlook.message,
        cluster=facts.cluster,
        attempts=facts.attempt.number,
        resumed=facts.attempt.resumed or None,
        dependencies_met=_dependencies_met(facts, told) or None,
        results=(facts.word and facts.word.results) or (before.results if facts.same_attempt else None),
        companion=facts.recorded,
        observed_generation=facts.job.metadata.get("generation"),
    )
    said = list(_said(facts, outlook, status))
    generation = status.observed_generation
    conditions = conditions_of(before.conditions, said, facts.now.replace(microsecond=0), generation)
    return status.model_copy(update={"conditions": conditions})


# --------------------------------------------------------------------------------------- where it is


def _outlook(facts: StatusInputs) -> JobOutcome:
    if facts.row is None:
        return _without_row(facts)
    if facts.row.phase in FINAL_PHASES:
        return _at_the_end(facts, facts.row)
    announced = facts.same_attempt and is_being_suspended(facts.before)
    if announced or (facts.job.spec.suspend and facts.row.phase is Phase.RUNNING):
        then = "." if facts.job.spec.suspend else ", and then starts anew."
        return JobOutcome(
            JobPhase.SUSPENDED, SUSPENDING, f"It is being cancelled in Slurm to suspend it{then}"
        )
    phase = JobPhase.SUSPENDED if facts.job.spec.suspend else PHASES[facts.row.phase]
    return JobOutcome(phase, facts.row.reason, facts.row.message)


def _at_the_end(facts: StatusInputs, row: Job) -> JobOutcome:
    if was_suspended(facts.before, row):
        then = "set suspend to false, and it starts anew" if facts.job.spec.suspend else "it starts anew"
        message = f"It was cancelled in Slurm to suspend it: {then}."
        return JobOutcome(JobPhase.SUSPENDED, SUSPENDED, message)
    if may_retry(facts.job.spec, facts.attempt, row):
        return JobOutcome(JobPhase.PENDING, RETRYING, _retry_in_words(facts, row))
    return JobOutcome(PHASES[row.phase], row.reason, row.message, end=row.phase.value)


def _retry_in_words(facts: StatusInputs, row: Job) -> str:
    attempt, limit = facts.attempt, facts.job.spec.backoff_limit
    why = row.message or f"It ended {row.state}."
    pause = pause_after(attempt)
    return f"{why} Retry {attempt.failures} of {limit} is submitted after {pause:.0f} s."


def _without_row(facts: StatusInputs) -> JobOutcome:
    """Before red-box knows the job, or when its row is no longer kept."""
    before = facts.before if facts.same_attempt else SlurmJobStatus()
    if before.finished or before.reason in {RETRYING, SUSPENDED}:
        return _as_before(before)
    if facts.word and facts.word.refused:
        refused = StatusProblem("Refused", facts.word.refused, final=True)
        return JobOutcome(JobPhase.FAILED, refused.reason, refused.message, "Failed", refused)
    problem = facts.problem or facts.trouble
    if problem is None and before.job_id:
        problem = StatusProblem(
            "NotKnown",
            f"red-box does not know job {before.job_id} any more, so this may be old: if its journal was "
            "lost, its administrator can have it back with `redbox recover`.",
        )
    if problem is None:
        return JobOutcome(JobPhase.SUSPENDED if facts.job.spec.suspend else JobPhase.PENDING)
    if problem.final:
        return JobOutcome(JobPhase.FAILED, problem.reason, problem.message, "Failed", problem)
    if before.job_id:
        return JobOutcome(before.phase, before.reason, problem.message, problem=problem)
    return JobOutcome(JobPhase.PENDING, problem.reason, problem.message, problem=problem)


def _as_before(before: SlurmJobStatus) -> JobOutcome:
    finished = before.condition(ConditionType.FINISHED)
    submitted = before.condition(ConditionType.SUBMITTED)
    end = finished.reason if finished and before.finished else None
    problem = None
    if (
        submitted
        and not before.holds(ConditionType.SUBMITTED)
        and submitted.reason not in {WAITING, RETRYING}
    ):
        problem = StatusProblem(submitted.reason, submitted.message, final=True)
    return JobOutcome(before.phase, before.reason, before.message, end, problem)


# --------------------------------------------------------------------------------------- the job's part


def _of_row(row: Job) -> dict[str, object]:
    array = ArrayStatus.model_validate(row.array.model_dump()) if row.array else None
    return {
        "state": row.state,
        "job_id": row.job_id,
        "partition": row.partition,
        "user": row.user,
        "nodes": row.nodes,
        "node_list": folded(row.nodes) or None,
        "exit_code": row.exit_code,
        "signal": row.signal,
        "submitted_at": _to_the_second(row.submitted_at),
        "started_at": _to_the_second(row.started_at),
        "ended_at": _to_the_second(row.ended_at),
        "stale_since": _to_the_second(row.stale_since),
        "run": row.run,
        "array": array,
        "working_directory": row.working_directory,
    }


def _kept(facts: StatusInputs) -> dict[str, object]:
    """What was told of this attempt before."""
    return {name: getattr(facts.before, name) for name in OF_ROW} if facts.same_attempt else {}


def _dependencies_met(facts: StatusInputs, told: dict[str, object]) -> bool:
    return bool(facts.job.spec.depends_on and (are_met(facts.before) or told.get("nodes")))


def _to_the_second(time: datetime | None) -> datetime | None:
    return time.replace(microsecond=0) if time else None


# --------------------------------------------------------------------------------------- conditions


def _said(facts: StatusInputs, outlook: JobOutcome, status: SlurmJobStatus) -> Iterator[NewCondition]:
    submitted = _submitted(outlook, status)
    yield submitted
    if submitted.holds:
        yield _running(outlook, status)
        yield _synced(facts, outlook, status)
    if facts.held is not None:
        yield _held(facts, facts.held)
    if facts.job.spec.results and submitted.holds:
        yield _results_collected(status.results)
    if outlook.end is None:
        yield NewCondition(ConditionType.FINISHED, holds=False, reason=UNFINISHED)
        return
    message = outlook.message or f"Slurm says {status.state}."
    yield NewCondition(ConditionType.FINISHED, holds=True, reason=outlook.end, message=message)
    verdict = ConditionType.COMPLETE if outlook.end == "Succeeded" else ConditionType.FAILED
    yield NewCondition(verdict, holds=True, reason=outlook.end, message=message)


def _submitted(outlook: JobOutcome, status: SlurmJobStatus) -> NewCondition:
    if outlook.reason == RETRYING:
        return NewCondition(
            ConditionType.SUBMITTED, holds=False, reason=RETRYING, message=outlook.message or ""
        )
    if status.job_id:
        message = f"Slurm job {status.job_id} of {status.user} on {status.cluster}"
        return NewCondition(ConditionType.SUBMITTED, holds=True, reason="Submitted", message=message)
    if outlook.problem:
        problem = outlook.problem
        return NewCondition(
            ConditionType.SUBMITTED, holds=False, reason=problem.reason, message=problem.message
        )
    return NewCondition(
        ConditionType.SUBMITTED, holds=False, reason=WAITING, message="It is on its way to Slurm."
    )


def _running(outlook: JobOutcome, status: SlurmJobStatus) -> NewCondition:
    if outlook.phase is JobPhase.RUNNING:
        where = f"on {status.node_list}" if status.node_list else ""
        return NewCondition(ConditionType.RUNNING, holds=True, reason="Running", message=where)
    if outlook.phase is JobPhase.SUSPENDED:
        return NewCondition(
            ConditionType.RUNNING, holds=False, reason="Suspended", message=outlook.message or ""
        )
    reason = "Ended" if outlook.end else WAITING
    return NewCondition(ConditionType.RUNNING, holds=False, reason=reason, message=outlook.message or "")


def _synced(facts: StatusInputs, outlook: JobOutcome, status: SlurmJobStatus) -> NewCondition:
    problem = facts.problem or (outlook.problem if facts.row is None else None)
    if problem and not problem.final:
        return NewCondition(ConditionType.SYNCED, holds=False, reason=problem.reason, message=problem.message)
    if status.stale_since:
        message = (
            f"Slurm has not been able to say how the job is since {status.stale_since:%Y-%m-%d %H:%M:%S} UTC"
        )
        return NewCondition(ConditionType.SYNCED, holds=False, reason="Stale", message=message)
    return NewCondition(ConditionType.SYNCED, holds=True, reason="Synced")


def _held(facts: StatusInputs, held: HoldState) -> NewCondition:
    why = "suspend" if facts.job.spec.suspend else "hold"
    message = f"Slurm holds it: {why} is true." if held is HoldState.HELD else ""
    return NewCondition(ConditionType.HELD, holds=held is HoldState.HELD, reason=held.value, message=message)


def _results_collected(results: ResultsStatus | None) -> NewCondition:
    if results is None:
        message = "They are copied once the job has ended."
        return NewCondition(ConditionType.RESULTS_COLLECTED, holds=False, reason=WAITING, message=message)
    reason = RESULTS_REASONS.get(results.outcome, RESULTS_FAILED)
    counted = f"{results.files or 0} files, {results.bytes or 0} bytes"
    message = results.message or counted
    if reason == RESULTS_FAILED:
        message = f"{message}; what came: {counted}"
    holds = results.outcome == "Collected"
    return NewCondition(ConditionType.RESULTS_COLLECTED, holds=holds, reason=reason, message=message)
