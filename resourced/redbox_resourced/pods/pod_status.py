"""The whole status of a pod on a virtual node, but for its host's address. Pure.

Phase and exit code come from red-box alone. Each time comes from red-box, Slurm or the API server, never from
the clock: so the same job makes the same status, and an unchanged status is not written.
"""

from __future__ import annotations

from datetime import UTC, datetime

from redbox_api.models import FINAL_PHASES, Job, Phase
from redbox_kube.api.objects import Object
from redbox_resourced.pods.exit_status import JobRefusal, end_of, termination_message_of
from redbox_resourced.pods.pod_view import SUBMITTED, BoundPod, PodContainer
from redbox_shared.job_end import EXIT_BY_STATE

NOT_RUN = "NotRunOnVirtualNode"
NOT_RUN_MESSAGE = (
    "This node stands for a partition of Slurm and runs no containers: jobs come to it as SlurmJobs. "
    "Keep other pods away by a nodeSelector, or by not tolerating redbox.dev/slurm."
)
LONGEST_MESSAGE = 1024


def waiting(pod: BoundPod, *, reason: str, message: str) -> Object:
    """The job is not submitted yet; reason and message say why."""
    return _status(
        pod,
        phase="Pending",
        state={"waiting": {"reason": reason, "message": message[:LONGEST_MESSAGE]}},
        since=pod.created_at,
        submitted=_condition(SUBMITTED, "False", pod.created_at, reason, message),
    )


def of_job(pod: BoundPod, job: Job) -> Object:
    if job.phase in FINAL_PHASES:
        return _ended(pod, job)
    submitted = _submitted(pod, job)
    if job.started_at is None:
        state: Object = {"waiting": {"reason": _reason(job), "message": _why(job)}}
        # The phase of a pod never goes back, although its job may be requeued.
        phase = "Running" if pod.phase == "Running" else "Pending"
        since = _since(pod, job)
        return _status(pod, phase=phase, state=state, since=since, submitted=submitted, runs=job.run)
    started = _time(job.started_at)
    return _status(
        pod,
        phase="Running",
        state={"running": {"startedAt": started}},
        since=started,
        submitted=submitted,
        ready=True,
        runs=job.run,
    )


def refused(pod: BoundPod, refusal: JobRefusal) -> Object:
    """The job was rejected."""
    message = refusal.termination_message()
    state = {"terminated": _terminated(refusal.exit_code, "Refused", message, pod.created_at)}
    status = _status(
        pod,
        phase="Failed",
        state=state,
        since=pod.created_at,
        submitted=_condition(SUBMITTED, "False", pod.created_at, "Refused", refusal.sentence),
    )
    return status | {"reason": "Refused", "message": refusal.sentence[:LONGEST_MESSAGE]}


def foreign_pod(pod: BoundPod) -> Object:
    """A pod that is not of a job: it fails, once."""
    state = {"terminated": _terminated(1, NOT_RUN, NOT_RUN_MESSAGE, pod.created_at)}
    status = _status(pod, phase="Failed", state=state, since=pod.created_at)
    return status | {"reason": NOT_RUN, "message": NOT_RUN_MESSAGE}


def daemon_pod(pod: BoundPod) -> Object:
    """A DaemonSet's pod: failed, it would be recreated forever; pending, it would stall each rollout."""
    status = _status(
        pod,
        phase="Running",
        state={"running": {"startedAt": pod.created_at}},
        since=pod.created_at,
        ready=True,
    )
    return status | {"reason": NOT_RUN, "message": NOT_RUN_MESSAGE}


def _ended(pod: BoundPod, job: Job) -> Object:
    code = end_of(job).pod_exit_code()
    end = job.ended_at or job.started_at or job.submitted_at
    finished = _time(end) if end else pod.created_at
    terminated = _terminated(code, _end_reason(job, code), termination_message_of(job), finished)
    if job.started_at:
        terminated["startedAt"] = _time(job.started_at)
    if job.signal:
        terminated["signal"] = job.signal
    status = _status(
        pod,
        phase="Failed" if code else "Succeeded",
        state={"terminated": terminated},
        since=finished,
        submitted=_submitted(pod, job),
        runs=job.run,
    )
    return status | ({"reason": _end_reason(job, code), "message": _why(job)} if code else {})


def _status(
    pod: BoundPod,
    *,
    phase: str,
    state: Object,
    since: str,
    submitted: Object | None = None,
    ready: bool = False,
    runs: int = 1,
) -> Object:
    is_ready = "True" if ready else "False"
    why: Object = {}
    if not ready:
        why["reason"] = "PodCompleted" if "terminated" in state else "ContainersNotReady"
    conditions = [
        {"type": "Initialized", "status": "True", "lastTransitionTime": pod.created_at},
        {"type": "Ready", "status": is_ready, "lastTransitionTime": since, **why},
        {"type": "ContainersReady", "status": is_ready, "lastTransitionTime": since, **why},
    ]
    return {
        "phase": phase,
        "startTime": pod.created_at,
        "conditions": [*conditions, submitted] if submitted else conditions,
        "containerStatuses": [
            _container(container, state, ready=ready, runs=runs) for container in pod.containers
        ],
    }


def _container(container: PodContainer, state: Object, *, ready: bool, runs: int) -> Object:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": runs - 1,
        "state": state,
        "lastState": {},
    }


def _terminated(code: int, reason: str, message: str, finished: str) -> Object:
    return {
        "exitCode": code,
        "reason": reason,
        "message": message,
        "startedAt": finished,
        "finishedAt": finished,
    }


def _submitted(pod: BoundPod, job: Job) -> Object:
    since = _since(pod, job)
    if job.job_id is None:
        return _condition(
            SUBMITTED, "True", since, "Accepted", "red-box has accepted the job and submits it to Slurm"
        )
    return _condition(SUBMITTED, "True", since, "Submitted", f"Slurm job {job.job_id} of {job.user}")


def _since(pod: BoundPod, job: Job) -> str:
    return _time(job.submitted_at) if job.submitted_at else pod.created_at


def _condition(kind: str, status: str, since: str, reason: str, message: str) -> Object:
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message[:LONGEST_MESSAGE],
    }


def _reason(job: Job) -> str:
    """Why it does not run, in one word."""
    if job.phase is Phase.SUBMITTING:
        return "Submitting"
    if job.run > 1:
        return "Requeued"
    return "Suspended" if job.phase is Phase.SUSPENDED else "Queued"


def _why(job: Job) -> str:
    """Red-box's message, else Slurm's state and reason."""
    words = " ".join(filter(None, (job.state, job.reason))) or job.phase.value
    return (job.message or f"Slurm says: {words}")[:LONGEST_MESSAGE]


def _end_reason(job: Job, code: int) -> str:
    if job.state == "OUT_OF_MEMORY":
        return "OOMKilled"
    if job.phase in {Phase.CANCELLED, Phase.LOST}:
        return job.phase.value
    if job.state in EXIT_BY_STATE:
        return job.state
    return "Error" if code else "Completed"


def _time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
