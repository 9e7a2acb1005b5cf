"""Which file of a pod's job a reader requests: of which container, and of which of its starts. Pure.

The answers where no log exists are those of kubelets (`validateContainerLogStatus`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from redbox_api.models import FINAL_PHASES, Job
from redbox_api.pod_report import ContainerReport
from redbox_resourced.kubelet.logs.lines import LogTimes
from redbox_resourced.kubelet.logs.query import LogRequest
from redbox_resourced.kubelet.rejection import RequestRejected
from redbox_resourced.pods.pod_view import BoundPod
from redbox_resourced.pods.reported.container_states import (
    ContainerView,
    container_views,
    ephemeral_views,
)

WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}
"""What kubelets say instead of these reasons."""


@dataclass(frozen=True)
class ReportedStart:
    """One start of a container: it has a file of its own."""

    container: str
    restart: int
    times: LogTimes


def requested_start(pod: BoundPod, container: str, job: Job | None, request: LogRequest) -> ReportedStart:
    """Raises RequestRejected."""
    view = _view(pod, container, job)
    report = view.report if view else ContainerReport(name=container)
    state, last = report.state, report.last_state
    if request.previous and last.terminated is None:
        msg = f'previous terminated container "{container}" in pod "{pod.name}" not found'
        raise RequestRejected(msg)
    newest = report.restart_count
    if state.running is not None and not request.previous:
        return ReportedStart(container, newest, LogTimes(state.running.started_at, None))
    ended = last.terminated if request.previous else state.terminated or last.terminated
    if ended is None:
        shown = f'container "{container}" in pod "{pod.name}"'
        if pod.details is not None and (refused := pod.details.ephemeral_ends.get(container)):
            raise RequestRejected(f"{shown} never started: {refused.get('message', '')}")
        if job is not None and job.phase in FINAL_PHASES:
            raise RequestRejected(f"{shown} is terminated: it never started")
        reason = state.waiting.reason if state.waiting else _first_reason(pod)
        raise RequestRejected(f"{shown} is waiting to start: {WAITING.get(reason, reason)}")
    # A container that waits for its next start has not begun it: its newest start is the one that ended.
    is_newest = state.waiting is not None or not request.previous
    restart = newest if is_newest else max(0, newest - 1)
    return ReportedStart(container, restart, LogTimes(ended.started_at, ended.finished_at))


def one_stream(request: LogRequest) -> LogRequest:
    """Both streams of a container are in one file, in the order in which they were written."""
    if "stdout" not in request.streams:
        raise RequestRejected("stdout and stderr of a container are one log here: use stream All")
    return replace(request, streams=("stdout",))


def _view(pod: BoundPod, container: str, job: Job | None) -> ContainerView | None:
    if pod.details is None or job is None:
        return None
    views = [*container_views(pod.details, pod, job, ""), *ephemeral_views(pod.details, job)]
    return next((view for view in views if view.container.name == container), None)


def _first_reason(pod: BoundPod) -> str:
    return "PodInitializing" if pod.details and pod.details.init_containers else "ContainerCreating"
