"""SlurmJobs as the API server has them."""

from __future__ import annotations

from typing import Any

from kubectl_slurm.slurmjobs.job import SlurmJobView

ENDS = {"Succeeded": "Complete", "Failed": "Failed", "Cancelled": "Failed"}


def slurmjob(
    name: str = "train-abc12", phase: str = "Running", *, spec: Any = None, **status: Any
) -> dict[str, Any]:
    """One of alice's; a final phase has its conditions."""
    conditions = [condition("Submitted", "True", "Submitted"), condition("Finished", "False", "Unfinished")]
    if phase in ENDS:
        reason = status.pop("end", phase)
        conditions = [
            conditions[0],
            condition("Finished", "True", reason),
            condition(ENDS[phase], "True", reason),
        ]
    facts = {"phase": phase, "jobID": "12", "cluster": "hpc1", "partition": "debug", "user": "alice"}
    return {
        "apiVersion": "redbox.dev/v1alpha1",
        "kind": "SlurmJob",
        "metadata": {
            "name": name,
            "namespace": "alice",
            "uid": f"uid-of-{name}",
            "resourceVersion": "7",
            "creationTimestamp": "2026-11-24T12:00:00Z",
        },
        "spec": {"batch": "#!/bin/sh\ntrue\n", **(spec or {})},
        "status": {**facts, "conditions": conditions, **status},
    }


def view(name: str = "train-abc12", phase: str = "Running", **more: Any) -> SlurmJobView:
    return SlurmJobView(slurmjob(name, phase, **more))


def condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": "2026-11-24T12:00:00Z"}


def slurmcluster(**status: Any) -> dict[str, Any]:
    """A SlurmCluster with three partitions."""
    amounts = {"nodes": 3, "cpus": 12, "memMb": 12000, "gpus": 0}
    partition = {
        "name": "debug",
        "state": "UP",
        "default": True,
        "limits": {"maxTimeS": 1800, "defaultTimeS": 600, "maxNodes": 2},
        "nodes": {"idle": 2, "mixed": 1},
        "total": amounts,
        "free": {**amounts, "nodes": 2, "cpus": 9},
        "largestNode": {"nodes": 1, "cpus": 4, "memMb": 4000, "gpus": 0},
    }
    other = {
        "name": "long",
        "state": "DOWN",
        "limits": {},
        "nodes": {},
        "total": {**amounts, "gpus": 2},
        "free": amounts,
    }
    return {
        "apiVersion": "redbox.dev/v1alpha1",
        "kind": "SlurmCluster",
        "metadata": {"name": "hpc1", "generation": 1},
        "spec": {},
        "status": {
            "partitionNames": ["debug", "long"],
            "partitions": [partition, other],
            "conditions": [condition("Reachable", "True", "Answers"), condition("Current", "True", "Fresh")],
            "observedGeneration": 1,
            **status,
        },
    }
