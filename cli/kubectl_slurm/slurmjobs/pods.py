"""Pods that run as Slurm jobs, in the form of SlurmJobs, so that a queue shows both alike."""

from __future__ import annotations

import re
from typing import Any

from kubectl_slurm.errors import NotPermitted
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.job import SlurmJobView

Object = dict[str, Any]
OF_NO_SLURMJOB = "--selector=!redbox.dev/role"
"""Pods of SlurmJobs have this label: of these there may be thousands."""
SUBMITTED = "redbox.dev/Submitted"
"""A condition that only resourced writes; its message names the job."""
JOB = re.compile(r"Slurm job (\S+) of (\S+)")
PARTITION = "redbox.dev/partition"
KIND = "pod/"
STATES = {"Running": "RUNNING", "Succeeded": "COMPLETED", "Failed": "FAILED"}


def list_pods(kubectl: Kubectl, *, everywhere: bool = False) -> list[SlurmJobView]:
    """Those that Slurm runs or is to run; none where the user may not list pods."""
    scope = ["--all-namespaces"] if everywhere else []
    try:
        found = kubectl.json("get", "pods", *scope, OF_NO_SLURMJOB)["items"]
    except NotPermitted:
        return []
    return [job for job in map(as_job, found) if job is not None]


def as_job(pod: Object) -> SlurmJobView | None:
    """None: it does not run on Slurm. Pure."""
    status, spec, metadata = pod.get("status", {}), pod["spec"], pod["metadata"]
    submitted = _condition(status, SUBMITTED)
    if not submitted:
        return None
    phase = str(status.get("phase", "Pending"))
    job, containers = JOB.match(submitted.get("message", "")), status.get("containerStatuses") or ()
    states = [container.get("state") or {} for container in containers]
    waiting: Object = next((state["waiting"] for state in states if "waiting" in state), {})
    started = [state["running"]["startedAt"] for state in states if "running" in state]
    ended = [state["terminated"].get("finishedAt") or "" for state in states if "terminated" in state]
    cluster, _, partition = str(spec.get("nodeName", "")).partition(".")
    has_ended = phase in {"Succeeded", "Failed"}
    shown: Object = {
        "phase": "Submitted" if phase == "Pending" and job else phase,
        "state": STATES.get(phase, "PENDING") if job or has_ended else "",
        "jobID": job[1] if job else "",
        "user": job[2] if job else "",
        "cluster": cluster,
        "partition": (spec.get("nodeSelector") or {}).get(PARTITION) or partition,
        "reason": status.get("reason") or waiting.get("reason") or submitted.get("reason"),
        "message": status.get("message") or waiting.get("message") or submitted.get("message"),
        "nodeList": status.get("hostIP") if phase == "Running" else "",
        "nodes": [status.get("hostIP")],
        "startedAt": min(started, default=None),
        "endedAt": max(ended, default=None) if has_ended else None,
        "conditions": [{"type": "Finished", "status": str(has_ended)}],
    }
    account = {"serviceAccountName": spec.get("serviceAccountName", "default")}
    return SlurmJobView(
        {
            "metadata": {**metadata, "name": f"{KIND}{metadata['name']}"},
            "spec": account,
            "status": shown,
        }
    )


def _condition(status: Object, kind: str) -> Object:
    return next((item for item in status.get("conditions") or () if item.get("type") == kind), {})
