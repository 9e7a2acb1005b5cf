"""The whole status of a pod on a virtual node, but for its host's address. Pure.

Phase and exit code come from red-box alone. Each time comes from red-box, Slurm or the API server, never from
the clock: so the same job makes the same status, and an unchanged status is not written.
"""

from __future__ import annotations

from datetime import UTC, datetime

from redbox_api.models import FINAL_PHASES, Job, Phase
from redbox_clusters.virtual_pods import SUBMITTED
from redbox_kube.api.objects import Object
from redbox_resourced.pods.exit_status import JobRefusal, end_of, termination_message_of
from redbox_resourced.pods.pod_view import BoundPod
from redbox_shared.job_end import EXIT_BY_STATE

NOT_RUN = "NotRunOnVirtualNode"
NOT_RUN_MESSAGE = (
    "This node stands for a partition of Slurm and runs no containers: jobs come to it as SlurmJobs. "
    "Keep other pods away by a nodeSelector, or by not tolerating redbox.dev/slurm."
)
NO_CLUSTER_MESSAGE = (
    "The SlurmCluster of this pod's node cannot be used now, or is not read yet: retry later. resourced's "
    "log says why."
)
LONGEST_MESSAGE = 1024


def waiting(pod: BoundPod, *, reason: str, message: str) -> Object:
    state = {"waiting": {"reason": reason, "message": message[:LONGEST_MESSAGE]}}
    return _status(
        pod, "Pending", state, submitted=submitted_condition("False", pod.created_at, reason, message)
    )


def of_job(pod: BoundPod, job: Job) -> Object:
    if job.phase in FINAL_PHASES:
        return _ended(pod, job)
    if job.started_at is None:
        state: Object = {"waiting": {"reason": _reason(job), "message": _why(job)}}
        # The phase of a pod never goes back, although its job may be requeued.
        phase, since = "Running" if pod.phase == "Running" else "Pending", _since(pod, job)
    else:
        phase, since = "Running", rfc3339(job.started_at)
        state = {"running": {"startedAt": since}}
    return _status(pod, phase, state, since=since, submitted=submitted_job(pod, job), runs=job.run)


def refused(pod: BoundPod, refusal: JobRefusal) -> Object:
    reason, message = "Refused", refusal.sentence[:LONGEST_MESSAGE]
    terminated = _terminated(refusal.exit_code, reason, refusal.termination_message(), pod.created_at)
    submitted = submitted_condition("False", pod.created_at, reason, message)
    status = _status(pod, "Failed", {"terminated": terminated}, submitted=submitted)
    return status | {"reason": reason, "message": message}


def foreign_pod(pod: BoundPod) -> Object:
    """A pod that is not of a job: it fails, once."""
    terminated = _terminated(1, NOT_RUN, NOT_RUN_MESSAGE, pod.created_at)
    status = _status(pod, "Failed", {"terminated": terminated})
    return status | {"reason": NOT_RUN, "message": NOT_RUN_MESSAGE}


def daemon_pod(pod: BoundPod) -> Object:
    """A DaemonSet's pod: failed, it would be recreated forever; pending, it would stall each rollout."""
    status = _status(pod, "Running", {"running": {"startedAt": pod.created_at}})
    return status | {"reason": NOT_RUN, "message": NOT_RUN_MESSAGE}


def _ended(pod: BoundPod, job: Job) -> Object:
    code = end_of(job).pod_exit_code()
    end = job.ended_at or job.started_at or job.submitted_at
    finished = rfc3339(end) if end else pod.created_at
    reason = _end_reason(job, code)
    terminated = _terminated(code, reason, termination_message_of(job), finished)
    if job.started_at:
        terminated["startedAt"] = rfc3339(job.started_at)
    if job.signal:
        terminated["signal"] = job.signal
    status = _status(
        pod,
        "Failed" if code else "Succeeded",
        {"terminated": terminated},
        since=finished,
        submitted=submitted_job(pod, job),
        runs=job.run,
    )
    return status | ({"reason": reason, "message": _why(job)} if code else {})


def _status(
    pod: BoundPod,
    phase: str,
    state: Object,
    *,
    since: str = "",
    submitted: Object | None = None,
    runs: int = 1,
) -> Object:
    """`since`: when it became (not) ready; without it, when it was created."""
    ready, since = "running" in state, since or pod.created_at
    is_ready = "True" if ready else "False"
    why = {} if ready else {"reason": "PodCompleted" if "terminated" in state else "ContainersNotReady"}
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
            {
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "ready": ready,
                "started": ready,
                "restartCount": runs - 1,
                "state": state,
                "lastState": {},
            }
            for container in pod.containers
        ],
    }


def _terminated(code: int, reason: str, message: str, finished: str) -> Object:
    return {
        "exitCode": code,
        "reason": reason,
        "message": message,
        "startedAt": finished,
        "finishedAt": finished,
    }


def submitted_job(pod: BoundPod, job: Job) -> Object:
    reason, message = "Submitted", f"Slurm job {job.job_id} of {job.user}"
    if job.job_id is None:
        reason, message = "Accepted", "red-box has accepted the job and submits it to Slurm"
    return submitted_condition("True", _since(pod, job), reason, message)


def _since(pod: BoundPod, job: Job) -> str:
    return rfc3339(job.submitted_at) if job.submitted_at else pod.created_at


def submitted_condition(status: str, since: str, reason: str, message: str) -> Object:
    return {
        "type": SUBMITTED,
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


def rfc3339(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
