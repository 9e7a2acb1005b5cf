"""The states of a job: an observation makes a new record out of an old one. Pure.

             sbatch accepted it            seen in the queue                seen to end
   intent ---------------------> bound ---------------------> bound, living ----------> final
     |                                                         ^   |    |                 |
     | no poll shows it          a live PUT submits it once    |   |    | not in queue    | lives again:
     v                           more, held: held retry        |   |    | nor accounting  | the next run
   unconfirmed ------------------------------------------------+   |    v                 |
     |                                                             |   lost               |
     | deleted                                                     +<---------------------+
     v
   never

Slurm may take an end back: it requeues a job whose node failed or that was preempted. Such an end is final
if the job cannot be requeued, once the queue has dropped it, or after half a minute. An end that may be a
failed launch waits as long for what `poll.cancelled_jobs` finds. `messages` explains a state in a sentence;
`poll.missing_jobs` decides what absence means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter

from redbox.core.observations import Observation, ObservedStatus, TaskObservation
from redbox.core.workload_manager import JobStates
from redbox.jobs.record.launches import may_be_failed_launch, phase_of_failed_launch
from redbox.jobs.record.limits import enforce_limits
from redbox.jobs.record.messages import explain
from redbox.jobs.record.pods import has_last_report, reported_phase, with_line
from redbox.jobs.record.record import STATUS_FIELDS, JobRecord, Stage, status_from, with_warning
from redbox.jobs.settings import JobsSettings
from redbox_api.models import ArrayCounts, Phase
from redbox_shared.wire import LAUNCH_FAILED

ENDED = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})  # as Slurm shows it: not LOST
LIVING = frozenset({Phase.PENDING, Phase.RUNNING, Phase.SUSPENDED})
RAN_AGAIN = (
    "Slurm runs it again although it had started before: its controller was restarted and had saved the job "
    "as one that waits. Slurm does not count that as a restart; this is run {}."
)
WITHOUT_A_START = ("PENDING", "COMPLETING")
STATUS = attrgetter(*(name for name in STATUS_FIELDS if name != "cancelled_by"))
"""What the queue shows of a job: who cancelled it comes from the accounting."""
STATE = attrgetter("state")


@dataclass(frozen=True, slots=True)
class StateMachine:
    """The transitions of records, by the workload manager's table of states."""

    states: JobStates
    settings: JobsSettings

    # ------------------------------------------------------------------------------------------ transitions

    def observe(self, record: JobRecord, observation: Observation, now: datetime) -> JobRecord:
        """The record after this observation of its job, whose uid and mark were checked before."""
        record = enforce_limits(record, observation)
        status = merged(record, observation)
        phase = self._shown_phase(status)
        if phase is None:
            phase = Phase.PENDING if record.phase is Phase.SUBMITTING else record.phase
        had_ended = record.end_was_seen and record.stage is Stage.BOUND
        lives_again = had_ended and phase not in ENDED
        same_end = had_ended and not lives_again
        again = began_again(record.status, status)
        uncounted = record.uncounted_runs + again
        run = max(record.run + 1 if lives_again else record.run, status.restarts + 1 + uncounted)
        earlier_start = record.status.started_at if run > record.run else None
        record = replace(
            record,
            stage=Stage.BOUND,
            status=status,
            in_queue=observation.live,
            confirmed=True,
            absent_since=None,
            lost_reason=record.lost_reason if same_end else "",
            no_sign_of_start=record.no_sign_of_start and same_end,
            uncounted_runs=uncounted,
            earlier_start=earlier_start or record.earlier_start,
            run=run,
        )
        if lives_again or again:  # who cancelled the run before did not cancel this one
            record = replace(record, status=replace(status, cancelled_by=None))
        if lives_again:  # what the run before reported says nothing about this one
            record = replace(record, pod_report="", report_settled=False, report_complete=False)
        if again:
            record = with_warning(record, RAN_AGAIN.format(record.run))
        return self._in_phase(record, phase, now)

    def with_task_ends(self, record: JobRecord, ended: Iterable[TaskObservation], now: datetime) -> JobRecord:
        """The record of an array with the ends of these tasks, which no poll has shown."""
        if record.final:
            return record
        status = record.status
        ended_before = {task.index for task in status.tasks if self.has_ended(task.state)}
        tasks = merge_tasks(status.tasks, [task for task in ended if task.index not in ended_before])
        size = len(tasks) + status.pending_tasks if record.first_seen_late else 0
        status = replace(status, tasks=tasks, array_size=max(status.array_size, size))
        record = replace(record, status=status, first_seen_late=False)
        return self._in_phase(record, self._shown_phase(status) or record.phase, now)

    def with_report(
        self, record: JobRecord, line: bytes, now: datetime, addresses: Collection[str] = ()
    ) -> JobRecord:
        """The record after this line of its pod's runner, which makes it final if its job has ended."""
        had_ended = record.awaits_report
        record = with_line(record, line, addresses)
        return (
            self.without_more_reports(record, now) if had_ended and has_last_report(record, now) else record
        )

    def without_more_reports(self, record: JobRecord, now: datetime) -> JobRecord:
        """The end of a pod's job as its report and Slurm show it by now."""
        record = replace(record, report_complete=True)
        return self._in_phase(record, self._shown_phase(record.status) or record.phase, now)

    def with_canceller(
        self,
        record: JobRecord,
        by: int | None,
        now: datetime,
        *,
        settled: bool,
        no_sign_of_start: bool = False,
        started_before: bool = False,
    ) -> JobRecord:
        """The record of a cancelled job after the accounting was asked; `settled`: nothing else will show.

        Its launch has failed with `no_sign_of_start`, and with `started_before`, of an earlier run.
        """
        status = replace(record.status, cancelled_by=by)
        if record.final:  # operators have acted on it: only the sentence follows
            record = replace(record, status=status)
            return replace(record, message=explain(record))
        lost_reason = LAUNCH_FAILED if started_before else ""
        record = replace(record, status=status, no_sign_of_start=no_sign_of_start, lost_reason=lost_reason)
        return self._in_phase(record, self._shown_phase(status) or record.phase, now, settled=settled)

    def _in_phase(
        self, record: JobRecord, phase: Phase, now: datetime, *, settled: bool = False
    ) -> JobRecord:
        if phase not in ENDED:
            return _alive(record, phase)
        if record.first_seen_late and record.in_queue:  # its other tasks may have failed
            return _alive(record, record.phase if record.phase in LIVING else Phase.RUNNING)
        record = replace(record, status=self._with_worst_end(record.status, phase))
        return self._ended(record, phase, now, settled=settled)

    def _ended(self, record: JobRecord, phase: Phase, now: datetime, *, settled: bool) -> JobRecord:
        since = record.ending_since or now
        phase = reported_phase(record) or phase_of_failed_launch(record) or phase
        may_be_requeued = record.status.state in self.states.requeued and record.status.requeue
        waits = now - since < timedelta(seconds=self.settings.final_after_s)
        may_live_again = record.in_queue and may_be_requeued and waits
        unread = record.is_pod and not record.report_complete
        unexplained = may_be_failed_launch(record) and waits and not settled
        if (may_live_again or unread or unexplained) and not record.final:
            shown = record.phase if record.phase is not Phase.SUBMITTING else Phase.RUNNING
            record = replace(record, phase=shown, ending_since=since)
        else:
            record = replace(record, phase=phase, ending_since=since, final_at=record.final_at or now)
        return replace(record, message=explain(record))

    # ------------------------------------------------------------------------------------------ phases

    def has_ended(self, state: str) -> bool:
        return self.states.phase_of(state) in ENDED

    def _shown_phase(self, status: ObservedStatus) -> Phase | None:
        """The phase of this status; whether an end is final is decided later."""
        if status.array_size and status.tasks:
            return self._array_phase(status)
        return self.states.phase_of(status.state)

    def _array_phase(self, status: ObservedStatus) -> Phase:
        """An array runs while a task runs, and has failed when all have ended and one failed."""
        counts = self.count_tasks(status)
        if counts.running:
            return Phase.RUNNING
        if counts.pending:
            return Phase.PENDING
        if counts.failed:
            return Phase.FAILED
        return Phase.CANCELLED if counts.cancelled else Phase.SUCCEEDED

    def _with_worst_end(self, status: ObservedStatus, phase: Phase) -> ObservedStatus:
        """An array's end as that of a task which caused it, if the queue no longer shows that task."""
        if self.states.phase_of(status.state) is phase:
            return status
        worst = next((task for task in status.tasks if self.states.phase_of(task.state) is phase), None)
        if worst is None:
            return status
        return replace(status, state=worst.state, exit_code=worst.exit_code, signal=worst.signal)

    # ------------------------------------------------------------------------------------------ array tasks

    def count_tasks(self, status: ObservedStatus) -> ArrayCounts:
        """Tasks that are not split off yet are pending, as are those without any observation."""
        phases = self._phases_of(status.tasks)
        total = max(status.array_size, len(status.tasks) + status.pending_tasks)
        running = phases[Phase.RUNNING] + phases[Phase.SUSPENDED]
        ended = {phase.lower(): phases[phase] for phase in ENDED}
        pending = total - running - sum(ended.values())
        return ArrayCounts(total=total, pending=pending, running=running, **ended)

    def shows_all_tasks(self, record: JobRecord, job: Observation) -> bool:
        """Whether this poll shows each task of an array, but for those that an earlier one saw end."""
        status = record.status
        missing = self._living_of(status.tasks) - self._living_of(job.tasks)
        return len(status.tasks) - missing + status.pending_tasks >= status.array_size

    def task_ends(self, job: Observation, row: Observation) -> list[TaskObservation]:
        """Ended tasks of an array that only accounting still shows.

        The queue takes precedence: accounting may not show yet that a task waits again.
        """
        queued = {task.index for task in job.tasks}.union(*job.waiting)
        return [task for task in row.tasks if task.index not in queued and self.has_ended(task.state)]

    def with_ended_tasks(self, job: Observation, rows: Iterable[Observation]) -> Observation:
        """An array as the queue shows it, and with the tasks that only these rows of it still show."""
        if not (job.live and job.array_size):
            return job
        ended = [task for row in rows if not row.live for task in self.task_ends(job, row)]
        tasks = merge_tasks(ended, job.tasks)
        return replace(job, tasks=tasks, array_size=len(tasks) + job.pending_tasks)

    def _phases_of(self, tasks: Iterable[TaskObservation]) -> Counter[Phase | None]:
        """How many are in which phase; state by state, for there may be a hundred thousand."""
        phases: Counter[Phase | None] = Counter()
        for state, number in Counter(map(STATE, tasks)).items():
            phases[self.states.phase_of(state)] += number
        return phases

    def _living_of(self, tasks: Sequence[TaskObservation]) -> int:
        phases = self._phases_of(tasks)
        return len(tasks) - sum(phases[phase] for phase in ENDED)


def merge_tasks(
    before: Sequence[TaskObservation], shown: Iterable[TaskObservation], waiting: Iterable[range] = ()
) -> tuple[TaskObservation, ...]:
    """The queue forgets an array's tasks one by one: those that it shows, and the rest as last observed.

    Those that it names among the waiting have been requeued since. What a task's output is named by stays
    known: old accounting does not show it.
    """
    again = set[int]().union(*waiting) if before else ()
    tasks = {task.index: task for task in before if task.index not in again}
    named = {task.index: task for task in before if task.own_id or task.node}
    tasks.update((task.index, task) for task in shown)
    for index, was in named.items():
        task = tasks.get(index)
        if task is not None and not (task.own_id or task.node):
            tasks[index] = replace(task, own_id=was.own_id, node=was.node)
    return tuple(tasks[index] for index in sorted(tasks))


def merged(record: JobRecord, observation: Observation) -> ObservedStatus:
    """The new status, with those parts of the old one that only earlier polls or the queue could show."""
    old, new = record.status, status_from(observation)
    is_same_run = new.restarts == old.restarts
    directory = new.working_directory or old.working_directory
    if directory == record.working_directory:
        directory = record.working_directory  # one string, of which there would be ten thousand pairs
    return replace(
        new,
        name=new.name or old.name,
        submitted_at=new.submitted_at or old.submitted_at,
        stdout=new.stdout or old.stdout,
        stderr=new.stderr or old.stderr,
        working_directory=directory,
        nodes=new.nodes or (old.nodes if is_same_run else ""),
        array_size=max(new.array_size, old.array_size),  # the queue forgets tasks one by one
        restarts=max(new.restarts, old.restarts),  # old accounting does not count them
        requeue=new.requeue if observation.live else old.requeue,
        cancelled_by=old.cancelled_by if is_same_run and new.cancelled_by is None else new.cancelled_by,
        tasks=merge_tasks(old.tasks, new.tasks, observation.waiting),
    )


def began_again(old: ObservedStatus, new: ObservedStatus) -> bool:
    """Whether a restarted slurmctld runs a job again that it had saved as pending: with the same restarts.

    A job that completes because of a requeue has its new number of restarts, and a start that moves.
    """
    if old.started_at is None or new.restarts != old.restarts or new.array_size:
        return False  # an array's start is that of the earliest task that the queue still shows
    if old.state in WITHOUT_A_START or new.state == "COMPLETING":
        return False
    return new.state == "PENDING" or (new.started_at is not None and new.started_at > old.started_at)


def is_unchanged(record: JobRecord, observation: Observation) -> bool:
    """Whether the job is as it was: most polls show most jobs so, therefore this is quick."""
    settled = record.final or (record.ending_since is None and record.absent_since is None)
    return (
        settled
        and record.in_queue
        and record.confirmed
        and record.job_id == observation.job_id
        and observation.live
        and STATUS(observation) == STATUS(record.status)
    )


def _alive(record: JobRecord, phase: Phase) -> JobRecord:
    record = replace(record, phase=phase, ending_since=None, final_at=None, cancel_after_end=False)
    return replace(record, message=explain(record))


def dropped_from_queue(record: JobRecord) -> JobRecord:
    """A final job that the queue no longer shows cannot live again."""
    return replace(record, in_queue=False)


def lost(record: JobRecord, now: datetime, why: str) -> JobRecord:
    """The end of a job whose outcome is unknown, unless its pod's runner has reported it."""
    phase = reported_phase(record) or Phase.LOST
    ended = replace(record, phase=phase, in_queue=False, final_at=now, absent_since=None, message=why)
    return ended if phase is Phase.LOST else replace(ended, message=explain(ended))


def is_new_cancel(record: JobRecord, *, force: bool) -> bool:
    """Whether a cancel, or one by force, was not requested before."""
    return not record.cancel_requested or (force and record.is_pod and not record.cancel_forced)


def to_cancel(record: JobRecord, now: datetime, *, force: bool) -> JobRecord:
    """The record with the request to cancel it; `force` is of pods, which have a grace without it."""
    after_end = record.cancel_after_end if record.cancel_requested else record.final
    cancelled = replace(
        record, cancel_requested=True, cancel_after_end=after_end, cancel_forced=force and record.is_pod
    )
    if record.stage is Stage.UNCONFIRMED:
        return never_submitted(cancelled, now, may_still_arrive=True)
    return cancelled


def never_submitted(record: JobRecord, now: datetime, *, may_still_arrive: bool = False) -> JobRecord:
    """The end of an intent that was cancelled before it became a job."""
    return replace(
        record,
        in_queue=may_still_arrive,
        stage=Stage.NEVER,
        phase=Phase.CANCELLED,
        final_at=now,
        message="It was cancelled before it was submitted.",
    )
