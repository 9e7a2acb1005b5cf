"""The whole status of a pod that runs, but for its host's address until the runner reports one. Pure.

What its containers did comes from the runner's report; why they ended with it from Slurm. Times are the
report's, Slurm's or the API server's, never the clock's; a condition that does not change keeps its time. So
the same job makes the same status.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from ipaddress import ip_address

from redbox_api.models import FINAL_PHASES, Job, Phase
from redbox_kube.api.objects import Object
from redbox_resourced.pods.exit_status import JobRefusal
from redbox_resourced.pods.pod_status import LONGEST_MESSAGE, rfc3339, submitted_condition, submitted_job
from redbox_resourced.pods.pod_view import ENDED, BoundPod, PodDetails
from redbox_resourced.pods.reported.container_states import (
    REASON_BY_STATE,
    ContainerView,
    container_views,
    end_of_job,
    ended_next,
    is_done,
    waiting_views,
    why_failed,
    without_next_start,
)
from redbox_resourced.pods.reported.ephemeral_states import ephemeral_statuses
from redbox_resourced.pods.reported.pod_phase import conditions_of, later_phase, phase_of, since
from redbox_shared.wire import LAUNCH_FAILED

SIGNALLED = 129
DISRUPTED = {
    "PREEMPTED": ("PreemptionBySlurm", "Slurm preempted the job for another one"),
    "NODE_FAIL": ("NodeLost", "the Slurm node of the job failed"),
    "BOOT_FAIL": ("NodeLost", "the Slurm node of the job did not boot"),
}
"""Reason and message of DisruptionTarget, by which podFailurePolicy tells such an end from the pod's own."""
NOT_LAUNCHED = (LAUNCH_FAILED, "Slurm could not launch the job on its node")
FORGOTTEN = ("ForgottenBySlurm", "slurmctld was restarted without the job, which nothing shows to have begun")
CUT_SHORT = REASON_BY_STATE.keys() - {"OUT_OF_MEMORY"}


def waiting(pod: BoundPod, *, reason: str, message: str) -> Object:
    """Its job is not submitted yet; reasons that are not a container's are red-box's own."""
    details = _details(pod)
    views = waiting_views(details, pod, reason, message[:LONGEST_MESSAGE])
    submitted = submitted_condition("False", pod.created_at, reason, message)
    return _status(pod, details, views, later_phase(pod.phase, "Pending"), submitted=submitted)


def refused(pod: BoundPod, refusal: JobRefusal) -> Object:
    """As a pod that a kubelet does not admit: no container ever waited."""
    submitted = submitted_condition("False", pod.created_at, refusal.reason, refusal.sentence)
    return {
        "phase": "Failed",
        "reason": refusal.reason,
        "message": refusal.sentence[:LONGEST_MESSAGE],
        "startTime": pod.created_at,
        "conditions": [submitted],
    }


def of_job(pod: BoundPod, job: Job) -> Object | None:
    """None where the report is missing of a pod that ran before: what it shows is the newest there is."""
    if job.pod is None and job.phase not in FINAL_PHASES and pod.phase == "Running":
        return None
    details = _details(pod)
    views = container_views(details, pod, job, _progress(job)) if _is_known(pod, job) else []
    ended_itself = _has_ended_itself(job, views)
    is_over = job.phase in FINAL_PHASES  # whatever was reported: a job that runs is not let go of
    views = without_next_start(views, job) if is_over or ended_itself else views
    phase = later_phase(pod.phase, phase_of(views, details.restart_policy, is_over=is_over))
    if is_over and ((job.pod is not None and job.pod.reason) or _is_cut_short(job)):
        phase = "Failed"  # by the reason for the whole pod: DeadlineExceeded, Evicted, Preempted
    elif not is_over and phase in ENDED:
        phase = "Running"  # the runner's last report, or Slurm's state, is still to come
    status = _status(
        pod, details, views, phase, submitted=submitted_job(pod, job), at=_changed_at(job), job=job
    )
    status |= _address(job)
    if phase == "Failed":
        status |= _why_failed(job, ended_itself=ended_itself)
        if not ended_itself and (disruption := _disruption(pod, details, job)):
            status["conditions"].append(disruption)
    return status


def never_ran(pod: BoundPod) -> Object:
    """A pod that is being deleted and has no job: controllers wait for its last phase."""
    details = _details(pod)
    reason, message = "Deleted", "the pod was deleted before it ran"
    views = waiting_views(details, pod, "ContainerCreating", "") if pod.phase == "Pending" else []
    views = ended_next(views, reason, message, datetime.fromisoformat(pod.ends_by or pod.created_at))
    submitted = submitted_condition("False", pod.created_at, reason, message)
    return _status(pod, details, views, "Failed", submitted=submitted)


def _is_known(pod: BoundPod, job: Job) -> bool:
    """Containers of a record that was lost may have ended before; they must not be shown as waiting."""
    return job.pod is not None or pod.phase != "Running" or job.phase is Phase.SUCCEEDED


def _has_ended_itself(job: Job, views: Sequence[ContainerView]) -> bool:
    """Whether its containers ended without a signal: then Slurm's state is not why.

    A slurmctld that was killed before it saved this end shows NODE_FAIL, or starts the job again.
    """
    is_signalled = any((view.exit_code or 0) >= SIGNALLED for view in views)
    return is_done(job) and not (is_signalled or (job.pod is not None and job.pod.stopped))


def _is_cut_short(job: Job) -> bool:
    """Whether Slurm ended the job before its containers had ended by themselves, however they ended then."""
    return job.pod is not None and job.pod.stopped and job.state in CUT_SHORT


def _why_failed(job: Job, *, ended_itself: bool) -> Object:
    """Nothing where the containers' own ends say it, as kubelets have it."""
    is_said = ended_itself or (is_done(job) and job.state not in DISRUPTED and not _is_cut_short(job))
    if is_said and not (job.pod is not None and job.pod.reason):
        return {}
    reason, message = why_failed(job)
    return {"reason": reason, "message": message[:LONGEST_MESSAGE]}


def _disruption(pod: BoundPod, details: PodDetails, job: Job) -> Object | None:
    found = NOT_LAUNCHED if job.reason == LAUNCH_FAILED else DISRUPTED.get(job.state or "")
    found = FORGOTTEN if job.no_sign_of_start else found
    if found is None:
        return None
    reason, message = found
    at = since(pod, details, "DisruptionTarget", "True", _changed_at(job))
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }


def _progress(job: Job) -> str:
    """Why a container that the runner has not reported waits."""
    if job.phase is Phase.SUBMITTING:
        words = "red-box submits the job to Slurm"
    elif job.started_at is None or job.phase is Phase.PENDING:
        words = f"Queued: {job.reason or job.state or 'Slurm has not said why'}"
    elif job.phase is Phase.SUSPENDED:
        words = "Slurm has suspended the job"
    else:
        words = f"Starting on {job.nodes[0]}" if job.nodes else "Starting"
    return (f"{words} ({job.message})" if job.message else words)[:LONGEST_MESSAGE]


def _changed_at(job: Job) -> str:
    """The time of what changed last."""
    at = end_of_job(job) if job.phase in FINAL_PHASES and not is_done(job) else None
    at = at or (job.pod.at if job.pod else None) or job.started_at or job.submitted_at
    return rfc3339(at) if at else ""


def with_pod_address(status: Object) -> Object:
    """Where pods are reached at the addresses of Slurm's nodes."""
    if "hostIP" not in status:
        return status
    return {**status, "podIP": status["hostIP"], "podIPs": status["hostIPs"]}


def _address(job: Job) -> Object:
    """The Slurm node's."""
    address = usable_address(job.pod.host_ip) if job.pod else ""
    return {"hostIP": address, "hostIPs": [{"ip": address}]} if address else {}


def usable_address(address: str) -> str:
    """The user's own text: Services must not be led to addresses that no node has."""
    try:
        found = ip_address(address)
    except ValueError:
        return ""
    odd = found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified
    return "" if odd else str(found)


def _status(
    pod: BoundPod,
    details: PodDetails,
    views: Sequence[ContainerView],
    phase: str,
    *,
    submitted: Object,
    at: str = "",
    job: Job | None = None,
) -> Object:
    runs = job is not None and job.pod is not None
    conditions = conditions_of(pod, details, views, phase, runs=runs, at=at)
    init = [view.status for view in views if view.is_init]
    return {
        "phase": phase,
        "startTime": pod.created_at,
        "conditions": [*conditions, submitted],
        **({"initContainerStatuses": init} if init else {}),
        "containerStatuses": [view.status for view in views if not view.is_init],
        **ephemeral_statuses(details, job, pod.created_at),
    }


def _details(pod: BoundPod) -> PodDetails:
    if pod.details is None:
        msg = f"{pod.namespace}/{pod.name} does not run"
        raise TypeError(msg)
    return pod.details
