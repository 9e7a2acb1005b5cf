"""Pods that run, their jobs, and what the runner reports of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from redbox_api.models import Job, OwnerRef, Phase
from redbox_api.pod_report import PodReport
from redbox_resourced.pods.pod_view import BoundPod, read_pod

CREATED = "2026-11-21T12:59:00Z"
SUBMITTED_AT = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)
STARTED_AT = SUBMITTED_AT + timedelta(seconds=10)
REPORTED_AT = SUBMITTED_AT + timedelta(seconds=20)
ENDED_AT = SUBMITTED_AT + timedelta(seconds=60)
BEGAN = "2026-11-21T13:00:12Z"
DIED = "2026-11-21T13:00:15Z"

WAITS: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
RUNS: dict[str, Any] = {"running": {"startedAt": BEGAN}}


def died(code: int, reason: str = "") -> dict[str, Any]:
    reason = reason or ("Error" if code else "Completed")
    return {
        "terminated": {"exitCode": code, "reason": reason, "startedAt": BEGAN, "finishedAt": DIED},
    }


def manifest(
    status: dict[str, Any] | None = None, *, metadata: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "alice",
            "name": "train",
            "uid": "pod-uid",
            "creationTimestamp": CREATED,
            **(metadata or {}),
        },
        "spec": {
            "nodeName": "hpc1.debug",
            "tolerations": [{"key": "redbox.dev/slurm", "operator": "Exists"}],
            "containers": [{"name": "main", "image": "busybox"}],
            **spec,
        },
        "status": status or {"phase": "Pending"},
    }


def running_pod(phase: str = "Pending", *conditions: dict[str, Any], **spec: Any) -> BoundPod:
    """A pod that runs; it is at this phase."""
    return read_pod(manifest({"phase": phase, "conditions": list(conditions)}, **spec))


def report(
    *,
    done: bool = False,
    stopped: bool = False,
    events: list[dict[str, Any]] | None = None,
    **containers: Any,
) -> PodReport:
    """A container is a state, or fields of its report."""
    rows = [{"name": name, **(row if "state" in row else {"state": row})} for name, row in containers.items()]
    return PodReport.model_validate(
        {
            "at": REPORTED_AT.isoformat(),
            "done": done,
            "stopped": stopped,
            "containers": rows,
            "events": events or [],
            "hostIP": "10.1.0.7",
        }
    )


def pod_job(phase: Phase = Phase.RUNNING, pod: PodReport | None = None, **fields: Any) -> Job:
    given: dict[str, Any] = {
        "job_id": "7",
        "submitted_at": SUBMITTED_AT,
        "partition": "debug",
    }
    if phase is not Phase.PENDING:
        given |= {"started_at": STARTED_AT, "nodes": ["c1"]}
    if phase not in {Phase.PENDING, Phase.RUNNING}:
        given["ended_at"] = ENDED_AT
    return Job(
        key="pod-uid",
        attempt=1,
        owner=OwnerRef(cluster="prod", namespace="alice", account="default"),
        user="alice",
        phase=phase,
        is_pod=True,
        pod=pod,
        **(given | fields),
    )
