"""Rows for tables of decisions: one pod, its record, and jobs."""

from __future__ import annotations

from typing import Any

from redbox_hosting.nodeset.observed import WorkerPod
from redbox_hosting.slurm.answers import RestJob, RestNode
from redbox_hosting.slurm.snapshot import SlurmSnapshot

NOW = 10_000.0


def pod(ordinal: int = 0, **more: Any) -> WorkerPod:
    name = f"w-{ordinal}"
    given = {"uid": f"uid-{ordinal}", "address": f"10.0.0.{ordinal}"}
    return WorkerPod(**{"name": name, "ordinal": ordinal, **given, **more})


def node(state: str = "IDLE", ordinal: int = 0, **more: Any) -> RestNode:
    given = {"name": f"w-{ordinal}", "instance_id": f"uid-{ordinal}", "address": f"10.0.0.{ordinal}"}
    return RestNode.model_validate({**given, "state": state.split("+"), **more})


def job(number: int = 7, state: str = "RUNNING", nodes: str = "w-0", **more: Any) -> RestJob:
    return RestJob.model_validate({"job_id": number, "job_state": state.split("+"), "nodes": nodes, **more})


def snapshot(*rows: RestNode | RestJob, **more: Any) -> SlurmSnapshot:
    nodes = {row.name: row for row in rows if isinstance(row, RestNode)}
    jobs = tuple(row for row in rows if isinstance(row, RestJob))
    return SlurmSnapshot(taken_at=NOW, nodes=nodes, jobs=jobs, **more)


UNKNOWN = SlurmSnapshot(taken_at=NOW, unknown="GET nodes/: no answer within 5 s")
