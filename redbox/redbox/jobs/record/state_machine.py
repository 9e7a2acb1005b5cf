"""From what was seen to what is said: an observation makes a new record out of an old one. Pure.

Slurm's final is not final: a state that Slurm may still take back (a node failed, the job was preempted) is
believed when the job cannot be requeued, when the queue has dropped it, or after half a minute. A record
whose job lives again is the next run of the same job. What is said in words is made in `words`, what
absence means in `absences`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from operator import attrgetter

from redbox.core.workload_manager import Observation, TaskObservation
from redbox.jobs.record.limits import enforce_limits
from redbox.jobs.record.messages import explain
from redbox.jobs.record.record import JobRecord, ObservedStatus, Stage, status_from
from redbox_api.models import Phase

WAITING = frozenset(
    {
        "PENDING",
        "CONFIGURING",
        "REQUEUED",
        "REQUEUE_FED",
        "POWER_UP_NODE",
        "LAUNCH_FAILED",
        "RESV_DEL_HOLD",
        "REVOKED",
    }
)
ACTIVE = frozenset(
    {"RUNNING", "COMPLETING", "EXPEDITING", "RECONFIG_FAIL", "RESIZING", "SIGNALING", "STAGE_OUT"}
)
PAUSED = frozenset({"SUSPENDED", "STOPPED", "SPECIAL_EXIT", "REQUEUE_HOLD"})
ENDS = {
    "COMPLETED": Phase.SUCCEEDED,
    "CANCELLED": Phase.CANCELLED,
    "FAILED": Phase.FAILED,
    "TIMEOUT": Phase.FAILED,
    "OUT_OF_MEMORY": Phase.FAILED,
    "DEADLINE": Phase.FAILED,
    "NODE_FAIL": Phase.FAILED,
    "PREEMPTED": Phase.FAILED,
    "BOOT_FAIL": Phase.FAILED,
}
FACTS = attrgetter(*(field.name for field in fields(ObservedStatus)))
STATE = attrgetter("state")
LIVING = frozenset({Phase.PENDING, Phase.RUNNING, Phase.SUSPENDED})
TAKEN_BACK = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL"})  # Slurm requeues these, a moment later


def phase_of(state: str) -> Phase | None:
    """Our word for one of Slurm's; None for a word that is not known, which changes nothing."""
    if state in WAITING:
        return Phase.PENDING
    if state in ACTIVE:
        return Phase.RUNNING
    if state in PAUSED:
        return Phase.SUSPENDED
    return ENDS.get(state)


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """How many tasks of an array are where; what is counted nowhere else waits."""

    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    cancelled: int


def count_tasks(status: ObservedStatus) -> TaskCounts:
    """Tasks that are not split off yet are pending, as are those that nothing is known of."""
    phases = _phases_of(status.tasks)
    total = max(status.array_size, len(status.tasks) + status.pending_tasks)
    running = phases[Phase.RUNNING] + phases[Phase.SUSPENDED]
    ended = [phases[phase] for phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)]
    return TaskCounts(total, total - running - sum(ended), running, *ended)


def _phases_of(tasks: Iterable[TaskObservation]) -> Counter[Phase | None]:
    """How many are where; state by state, for there may be a hundred thousand."""
    phases: Counter[Phase | None] = Counter()
    for state, number in Counter(map(STATE, tasks)).items():
        phases[phase_of(state)] += number
    return phases


def merge_tasks(
    known: Sequence[TaskObservation], shown: Iterable[TaskObservation], waiting: Iterable[range] = ()
) -> tuple[TaskObservation, ...]:
    """The queue forgets an array's tasks one by one: those that it shows, and the rest as last seen.

    Those that it names among the waiting have been requeued since.
    """
    again = set[int]().union(*waiting) if known else ()
    tasks = {task.index: task for task in known if task.index not in again}
    tasks.update((task.index, task) for task in shown)
    return tuple(tasks[index] for index in sorted(tasks))


def has_ended(task: TaskObservation) -> bool:
    return phase_of(task.state) in ENDS.values()


def tells_all(record: JobRecord, job: Observation) -> bool:
    """Whether this look at an array shows each task, but for those that an earlier one saw end."""
    status = record.status
    unseen = _alive_of(status.tasks) - _alive_of(job.tasks)  # last seen alive, and no longer shown
    return len(status.tasks) - unseen + status.pending_tasks >= status.array_size


def _alive_of(tasks: Sequence[TaskObservation]) -> int:
    phases = _phases_of(tasks)
    return len(tasks) - sum(phases[phase] for phase in set(ENDS.values()))


def ended_unseen(job: Observation, row: Observation) -> list[TaskObservation]:
    """Tasks of an array that the queue no longer has, as accounting tells of their ends.

    What the queue has is what counts: accounting may not know yet that a task waits again.
    """
    there = {task.index for task in job.tasks}.union(*job.waiting)
    return [task for task in row.tasks if task.index not in there and has_ended(task)]


def with_ended_unseen(job: Observation, rows: Iterable[Observation]) -> Observation:
    """An array as the queue shows it, and with the tasks that only these rows of it still tell of."""
    if not (job.live and job.array_size):
        return job
    ended = [task for row in rows if not row.live for task in ended_unseen(job, row)]
    tasks = merge_tasks(ended, job.tasks)
    return replace(job, tasks=tasks, array_size=len(tasks) + job.pending_tasks)


def array_phase(status: ObservedStatus) -> Phase:
    """An array runs while a task runs, and has failed when all have ended and one failed."""
    counts = count_tasks(status)
    if counts.running:
        return Phase.RUNNING
    if counts.pending:
        return Phase.PENDING
    if counts.failed:
        return Phase.FAILED
    return Phase.CANCELLED if counts.cancelled else Phase.SUCCEEDED


def shown_phase(status: ObservedStatus) -> Phase | None:
    """The phase that this shows, before it is asked whether an end is an end."""
    if status.array_size and status.tasks:
        return array_phase(status)
    return phase_of(status.state)


def merged(record: JobRecord, observation: Observation) -> ObservedStatus:
    """What is known now: what was seen, without losing what only earlier looks or the queue could tell."""
    old, new = record.status, status_from(observation)
    directory = new.working_directory or old.working_directory
    same_run = new.restarts == old.restarts
    return replace(
        new,
        name=new.name or old.name,
        submitted_at=new.submitted_at or old.submitted_at,
        stdout=new.stdout or old.stdout,
        stderr=new.stderr or old.stderr,
        working_directory=shared(directory, record.working_directory),
        nodes=new.nodes or (old.nodes if same_run else ""),
        array_size=max(new.array_size, old.array_size),  # the queue forgets tasks one by one
        restarts=max(new.restarts, old.restarts),  # old accounting does not count them
        tasks=merge_tasks(old.tasks, new.tasks, observation.waiting),
    )


def with_worst_end(status: ObservedStatus, phase: Phase) -> ObservedStatus:
    """An array's end as that of a task which made it so, where the queue no longer shows that task."""
    if phase_of(status.state) is phase:
        return status
    worst = next((task for task in status.tasks if phase_of(task.state) is phase), None)
    if worst is None:
        return status
    return replace(status, state=worst.state, exit_code=worst.exit_code, signal=worst.signal)


def shared(text: str, known: str) -> str:
    """One string instead of two that are equal, of which there would be ten thousand pairs."""
    return known if text == known else text


def shows_nothing_new(record: JobRecord, observation: Observation) -> bool:
    """Whether a look found all as it was: most looks at most jobs do, so this is quick."""
    settled = record.final or (record.ending_since is None and record.absent_since is None)
    return (
        settled
        and record.in_queue
        and record.confirmed
        and record.job_id == observation.job_id
        and observation.live
        and FACTS(observation) == FACTS(record.status)
    )


def may_be_taken_back(status: ObservedStatus) -> bool:
    return status.state in TAKEN_BACK and status.requeue


def observed(
    record: JobRecord, observation: Observation, now: datetime, *, final_after_s: float
) -> JobRecord:
    """The record after its job was seen so; the observation's uid and mark were checked before."""
    record = enforce_limits(record, observation)
    status = merged(record, observation)
    phase = shown_phase(status) or (Phase.PENDING if record.phase is Phase.SUBMITTING else record.phase)
    had_ended = record.final and record.stage is Stage.BOUND and record.phase is not Phase.LOST
    lives_again = had_ended and phase not in ENDS.values()
    known = replace(
        record,
        stage=Stage.BOUND,
        status=status,
        in_queue=observation.live,
        confirmed=True,
        absent_since=None,
        run=max(record.run + 1 if lives_again else record.run, status.restarts + 1),
    )
    return _standing(known, phase, now, final_after_s)


def told_of(
    record: JobRecord, ended: Iterable[TaskObservation], now: datetime, *, final_after_s: float
) -> JobRecord:
    """The record of an array after it was heard how these tasks ended, which no look has shown."""
    if record.final:
        return record
    status = record.status
    known = {task.index for task in status.tasks if has_ended(task)}
    tasks = merge_tasks(status.tasks, [task for task in ended if task.index not in known])
    size = len(tasks) + status.pending_tasks if record.first_seen_late else 0
    status = replace(status, tasks=tasks, array_size=max(status.array_size, size))
    told = replace(record, status=status, first_seen_late=False)
    return _standing(told, shown_phase(status) or record.phase, now, final_after_s)


def _standing(record: JobRecord, phase: Phase, now: datetime, final_after_s: float) -> JobRecord:
    if phase not in ENDS.values():
        return _alive(record, phase)
    if record.first_seen_late and record.in_queue:  # its other tasks may have failed
        return _alive(record, record.phase if record.phase in LIVING else Phase.RUNNING)
    status = with_worst_end(record.status, phase)
    return _ended(replace(record, status=status), phase, now, final_after_s)


def _alive(record: JobRecord, phase: Phase) -> JobRecord:
    record = replace(record, phase=phase, ending_since=None, final_at=None)
    return replace(record, message=explain(record))


def _ended(record: JobRecord, phase: Phase, now: datetime, final_after_s: float) -> JobRecord:
    since = record.ending_since or now
    waits = now - since < timedelta(seconds=final_after_s)
    if record.in_queue and may_be_taken_back(record.status) and waits and not record.final:
        shown = record.phase if record.phase is not Phase.SUBMITTING else Phase.RUNNING
        return replace(record, phase=shown, ending_since=since, message=explain(record))
    record = replace(record, phase=phase, ending_since=since, final_at=record.final_at or now)
    return replace(record, message=explain(record))


def dropped_from_queue(record: JobRecord) -> JobRecord:
    """A final job that the queue no longer shows cannot live again."""
    return replace(record, in_queue=False)


def lost(record: JobRecord, now: datetime, why: str) -> JobRecord:
    """The end of a job whose outcome nobody can tell."""
    return replace(record, phase=Phase.LOST, in_queue=False, final_at=now, absent_since=None, message=why)


def never_submitted(record: JobRecord, now: datetime, *, may_still_arrive: bool = False) -> JobRecord:
    """The end of an intent that was cancelled before it became a job, as far as anybody knows."""
    return replace(
        record,
        in_queue=may_still_arrive,
        stage=Stage.NEVER,
        phase=Phase.CANCELLED,
        final_at=now,
        message="It was cancelled before it was submitted.",
    )
