"""A SlurmJob's status, whole, from what red-box says of the job and Kubernetes of its companion. Pure."""

from __future__ import annotations

import json
from typing import Any

from redbox_api.models import Job, Phase
from redbox_operator.kinds import SlurmJob

Object = dict[str, Any]

PHASES = {
    Phase.SUBMITTING: "Pending",
    Phase.PENDING: "Submitted",
    Phase.RUNNING: "Running",
    Phase.SUSPENDED: "Suspended",
    Phase.SUCCEEDED: "Succeeded",
    Phase.FAILED: "Failed",
    Phase.CANCELLED: "Cancelled",
    Phase.LOST: "Failed",
}


def status_of(slurm_job: SlurmJob, job: Job | None, companion: Object | None, problem: str | None) -> Object:
    """Everything that is known; what is not known is left out."""
    phase = PHASES[job.phase] if job else "Failed" if problem else "Pending"
    status: Object = {
        "phase": phase,
        "status": phase,
        "cluster": slurm_job.spec.cluster,
        "observedGeneration": slurm_job.metadata.get("generation"),
    }
    if companion:
        status["companion"] = {"uid": companion["metadata"]["uid"]}
    if problem:
        status |= {"reason": "NotSubmitted", "message": problem}
    if job:
        status |= _of_job(job)
    return {name: value for name, value in status.items() if value not in (None, [])}


def _of_job(job: Job) -> Object:
    return {
        "state": job.state,
        "reason": job.reason,
        "message": job.message,
        "jobID": job.job_id,
        "partition": job.partition,
        "user": job.user,
        "nodes": job.nodes,
        "exitCode": job.exit_code,
        "signal": job.signal,
    }


def refusal_of(companion: Object | None) -> str | None:
    """Why the companion never got a job, in its own last word; None while all is well."""
    for container in (companion or {}).get("status", {}).get("containerStatuses", []):
        message = container.get("state", {}).get("terminated", {}).get("message", "")
        if '"refused"' in message:
            return _refused(message)
    return None


def _refused(message: str) -> str | None:
    try:
        word = json.loads(message)
    except ValueError:
        return None
    refused = word.get("refused") if isinstance(word, dict) else None
    return str(refused) if refused else None
