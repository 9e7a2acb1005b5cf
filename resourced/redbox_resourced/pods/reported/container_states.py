"""The containers of a pod that runs, in the order of its spec: as the runner reports them. Pure.

A container that the runner has not reported waits. Where Slurm has ended the job and the report is not done,
the runner was killed: containers that ran then have ended with it, for the reason that Slurm's state gives.
Where it was not killed, its last report is missing, and its exit code, which is the job's, stands for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from redbox_api.models import FINAL_PHASES, Job, Phase
from redbox_api.pod_report import ContainerReport, ContainerState, Terminated, Waiting
from redbox_kube.api.objects import Object
from redbox_resourced.pods.pod_status import LONGEST_MESSAGE, rfc3339
from redbox_resourced.pods.pod_view import BoundPod, PodContainer, PodDetails
from redbox_shared.wire import LAUNCH_FAILED

DELETIONS = frozenset({"Deleted", "Cancelled"})
"""Reasons of a pod whose containers never began: of these kubelets say ContainerStatusUnknown."""
KILLED = 137
NOT_STARTED = 128
START_ERROR = "StartError"
UNKNOWN = "ContainerStatusUnknown"
UNKNOWN_TIME = datetime(1970, 1, 1, tzinfo=UTC)
REASON_BY_STATE = {
    "TIMEOUT": "DeadlineExceeded",
    "DEADLINE": "DeadlineExceeded",
    "OUT_OF_MEMORY": "OOMKilled",
    "NODE_FAIL": "NodeLost",
    "BOOT_FAIL": "NodeLost",
    "PREEMPTED": "Preempted",
    "CANCELLED": "Cancelled",
}
"""Why containers ended that Slurm ended with their job."""


@dataclass(frozen=True)
class ContainerView:
    """A container of the spec, and what became of it."""

    container: PodContainer
    is_init: bool
    report: ContainerReport

    @property
    def runs_once(self) -> bool:
        """An init container that ends before the next one starts."""
        return self.is_init and not self.container.is_sidecar

    @property
    def exit_code(self) -> int | None:
        """None where it has not ended."""
        ended = self.report.state.terminated
        return None if ended is None else ended.exit_code

    @property
    def is_running(self) -> bool:
        return self.report.state.running is not None

    @property
    def is_ready(self) -> bool:
        """An init container is ready once it has succeeded."""
        return self.exit_code == 0 if self.runs_once else self.is_running and self.report.ready

    @property
    def is_started(self) -> bool:
        return self.is_running and self.report.started

    @property
    def last_end(self) -> Terminated | None:
        """Its end, or the end of the start before, where it waits for its next start."""
        return self.report.state.terminated or self.report.last_state.terminated

    @property
    def status(self) -> Object:
        """As in containerStatuses."""
        return {
            "name": self.container.name,
            "image": self.container.image,
            "imageID": self.report.image_id,
            "ready": self.is_ready,
            "started": self.is_started,
            "restartCount": self.report.restart_count,
            "state": _state(self.report.state),
            "lastState": _state(self.report.last_state),
        }


def is_done(job: Job) -> bool:
    """Whether all that its containers will ever do is reported."""
    return job.pod is not None and job.pod.done


def waiting_views(details: PodDetails, pod: BoundPod, reason: str, message: str) -> list[ContainerView]:
    """All wait: the first to start for this reason, the others for the init containers."""
    first = Waiting(reason=reason, message=message)
    later = Waiting(reason="PodInitializing", message=message) if details.init_containers else first
    containers = _in_order(details, pod)
    return [
        _waiting_view(container, later if index else first, is_init=is_init)
        for index, (container, is_init) in enumerate(containers)
    ]


def container_views(details: PodDetails, pod: BoundPod, job: Job, message: str) -> list[ContainerView]:
    """`message` is of those that have not been reported."""
    reason = "PodInitializing" if details.init_containers else "ContainerCreating"
    return _views(_in_order(details, pod), job, Waiting(reason=reason, message=message))


def ephemeral_views(details: PodDetails, job: Job) -> list[ContainerView]:
    """Those that `kubectl debug` has added."""
    default = Waiting(reason="ContainerCreating")
    return _views(((container, False) for container in details.ephemeral_containers), job, default)


def _views(
    containers: Iterable[tuple[PodContainer, bool]], job: Job, default: Waiting
) -> list[ContainerView]:
    reports = {report.name: report for report in job.pod.containers} if job.pod else {}
    views = []
    for container, is_init in containers:
        report = reports.get(container.name)
        if report is None or report.state == ContainerState():
            views.append(_waiting_view(container, default, report, is_init=is_init))
        else:
            views.append(ContainerView(container, is_init, report))
    return [_ended(view, job) for view in views] if job.phase in FINAL_PHASES else views


def end_reason(job: Job) -> str:
    """Why containers that ran have ended with their job, in one word."""
    if job.reason == LAUNCH_FAILED:
        return LAUNCH_FAILED
    by_phase = REASON_BY_STATE["CANCELLED"] if job.phase is Phase.CANCELLED else UNKNOWN
    return REASON_BY_STATE.get(job.state or "", by_phase)


def why_failed(job: Job) -> tuple[str, str]:
    """Reason and message of a pod that failed, where its containers' own ends do not say why."""
    if job.pod is not None and job.pod.reason:
        return job.pod.reason, job.pod.message
    reason = "Lost" if job.phase is Phase.LOST else end_reason(job)
    if reason == UNKNOWN:
        reason = START_ERROR if job.pod is None else "Error"
    message = job.message or f"Slurm ended the job: {job.state or job.phase.value}"
    return reason, f"{message} {_cure_of_time_limit(job)}" if job.state == "TIMEOUT" else message


def _cure_of_time_limit(job: Job) -> str:
    minutes = (
        int((job.ended_at - job.started_at).total_seconds()) // 60 if job.ended_at and job.started_at else 0
    )
    ran = f"It had run for {minutes} min: " if minutes else ""
    return f"{ran}ask for more with the annotation redbox.dev/time, as far as the partition allows."


def without_next_start(views: Sequence[ContainerView], job: Job) -> list[ContainerView]:
    """As kubelets leave a pod that is over: what was to start next has ended with it, and waits no longer.

    What was to start after that, or after an init container that failed, still waits for its initialization.
    """
    reason, message = why_failed(job)
    return ended_next(views, reason, message, end_of_job(job))


def ended_next(
    views: Sequence[ContainerView], reason: str, message: str, at: datetime | None
) -> list[ContainerView]:
    """With this end for the init container, or all main containers, that would have started next."""
    ended = Terminated(
        exit_code=NOT_STARTED if reason == START_ERROR else KILLED,
        reason=UNKNOWN if reason in DELETIONS else reason,
        message=message[:LONGEST_MESSAGE],
        finished_at=at or UNKNOWN_TIME,
    )
    state, due = ContainerState(terminated=ended), _next_to_start(views)
    return [
        replace(view, report=view.report.model_copy(update={"state": state})) if view in due else view
        for view in views
    ]


def _next_to_start(views: Sequence[ContainerView]) -> Sequence[ContainerView]:
    for view in views:
        if view.is_init and view.report.state.waiting is not None:
            return [view]
        if view.runs_once and view.exit_code != 0:
            return []
    return [view for view in views if view.report.state.waiting is not None]


def end_of_job(job: Job) -> datetime | None:
    """By Slurm, else by the last report."""
    return job.ended_at or (job.pod.at if job.pod else None) or job.started_at or job.submitted_at


def _in_order(details: PodDetails, pod: BoundPod) -> Iterator[tuple[PodContainer, bool]]:
    yield from ((container, True) for container in details.init_containers)
    yield from ((container, False) for container in pod.containers)


def _waiting_view(
    container: PodContainer, waiting: Waiting, report: ContainerReport | None = None, *, is_init: bool
) -> ContainerView:
    report = report or ContainerReport(name=container.name)
    state = ContainerState(waiting=waiting)
    return ContainerView(container, is_init, report.model_copy(update={"state": state}))


def _ended(view: ContainerView, job: Job) -> ContainerView:
    """As it is once the job has ended; a container that never started still waits."""
    report = view.report
    state, last = report.state, report.last_state
    if _has_succeeded_unreported(job):
        if view.exit_code != 0:
            state = _terminated(0, "Completed", "", _began(report), job)
    elif state.running is not None:
        code = _exit_code_of_runner(job)
        reason = "Error" if code else end_reason(job)
        state = _terminated(code or KILLED, reason, job.message or "", state.running.started_at, job)
    elif state.waiting is not None and last.terminated is not None:
        state, last = last, ContainerState()  # it waited for a start that never comes
    return replace(view, report=report.model_copy(update={"state": state, "last_state": last}))


def _terminated(code: int, reason: str, message: str, began: datetime | None, job: Job) -> ContainerState:
    """With its job."""
    began = began or job.started_at
    times = [time for time in (began, end_of_job(job)) if time is not None]
    ended = Terminated(
        exit_code=code,
        reason=reason,
        message=message[:LONGEST_MESSAGE],
        started_at=began,
        finished_at=max(times, default=UNKNOWN_TIME),
    )
    return ContainerState(terminated=ended)


def _has_succeeded_unreported(job: Job) -> bool:
    """Whether its last report is missing, as over a full quota, and Slurm says what it would have said.

    The job's exit code is the runner's, and that is 0 only if all main containers have ended with 0.
    """
    return job.phase is Phase.SUCCEEDED and not is_done(job)


def _exit_code_of_runner(job: Job) -> int:
    """Of a runner that ended by itself: that of the container which made the pod fail; else 0."""
    has_ended_itself = job.phase is Phase.FAILED and end_reason(job) == UNKNOWN and not job.signal
    return min(job.exit_code or 0, 255) if has_ended_itself else 0


def _began(report: ContainerReport) -> datetime | None:
    """When its newest start was, as far as it was reported."""
    start = report.state.running or report.state.terminated or report.last_state.terminated
    return start.started_at if start else None


def _state(state: ContainerState) -> Object:
    if state.waiting is not None:
        return {"waiting": _filled(reason=state.waiting.reason, message=state.waiting.message)}
    if state.running is not None:
        return {"running": {"startedAt": rfc3339(state.running.started_at)}}
    if state.terminated is None:
        return {}
    ended = state.terminated
    times = _filled(
        startedAt=rfc3339(ended.started_at or ended.finished_at), finishedAt=rfc3339(ended.finished_at)
    )
    words = _filled(reason=ended.reason, message=ended.message, signal=ended.signal)
    return {"terminated": {"exitCode": ended.exit_code, **words, **times}}


def _filled(**fields: object) -> Object:
    return {name: value for name, value in fields.items() if value}


def names_of(views: Sequence[ContainerView]) -> str:
    """As kubelets list them in messages of conditions."""
    return f"[{' '.join(view.container.name for view in views)}]"
