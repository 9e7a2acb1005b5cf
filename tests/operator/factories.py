"""SlurmJobs, SlurmClusters, rows and status inputs for tests, with defaults for all fields."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from redbox_api.models import Amounts, Job, OwnerRef, Partition, Phase
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_clusters.slurm_endpoint import SlurmEndpoint
from redbox_operator.api.slurmcluster_status import (
    ClusterFacts,
    ClusterUsers,
    SlurmClusterStatus,
    cluster_status_of,
)
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_status import CompanionStatus, SlurmJobStatus
from redbox_operator.slurmjob.attempts import Attempt
from redbox_operator.slurmjob.status import StatusInputs

OWNER = OwnerRef(cluster="c", namespace="farm", account="default")
NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
COMPANION = CompanionStatus(name="cow-job", uid="pod-uid", attempt=1)


def slurm_cluster(**spec: Any) -> SlurmCluster:
    given = {
        "endpoint": "https://login.example:8443",
        "caBundle": base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode(),
        "audience": "redbox.dev/hpc1/4711",
    }
    return SlurmCluster.model_validate({"metadata": {"name": "hpc1"}, "spec": {**given, **spec}})


def partition(name: str = "debug", *, free: int = 4, state: str = "UP") -> Partition:
    cpus = Amounts(nodes=1, cpus=4, mem_mb=100)
    return Partition(name=name, state=state, total=cpus, free=cpus.model_copy(update={"cpus": free}))


def slurm_endpoint(name: str = "mine", namespace: str = "farm", **metadata: Any) -> SlurmEndpoint:
    spec = {
        "endpoint": f"https://redbox.{namespace}.svc:8443",
        "caBundle": base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode(),
    }
    made = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", **metadata}
    return SlurmEndpoint.model_validate({"metadata": made, "spec": spec})


def cluster_facts(**changed: Any) -> ClusterFacts:
    """Of a SlurmCluster whose red-box answers, and describes nothing."""
    plain = ClusterFacts(
        cluster=slurm_cluster(),
        before=SlurmClusterStatus(),
        trouble=None,
        reason="Answers",
        description=None,
        roles=None,
        partitions=None,
        use_is_due=True,
        stale_since=None,
        phases=[],
        orphans=[],
        in_use_by=ClusterUsers(),
        gateways=[],
        pods_reported=False,
        now=NOON,
    )
    return replace(plain, **changed)


def with_gateways(*nodes: str) -> SlurmCluster:
    """A SlurmCluster that is to hold jobs back by these gateways, with the status that it has then."""
    cluster = slurm_cluster(gateways=True, holdBack=True)
    facts = cluster_facts(cluster=cluster, gateways=nodes, now=datetime(2026, 11, 21, tzinfo=UTC))
    status = cluster_status_of(facts)
    return cluster.model_copy(update={"status": status.model_dump(mode="json", by_alias=True)})


def slurm_job(name: str = "cow", **spec: Any) -> SlurmJob:
    metadata = {"name": name, "namespace": "farm", "uid": "0aa6-11", "generation": 1}
    what = {} if {"batch", "batchFrom", "container"} & spec.keys() else {"batch": "#!/bin/sh\necho moo\n"}
    report = {"cluster": "hpc1", **what, **spec}
    return SlurmJob.model_validate({"metadata": metadata, "spec": report})


def job_row(phase: Phase, **facts: Any) -> Job:
    facts = {"job_id": "7", "state": phase.upper(), **facts}
    return Job(key="0aa6-11", attempt=1, owner=OWNER, user="alice", phase=phase, **facts)


def status_inputs(row: Job | None = None, **changed: Any) -> StatusInputs:
    plain = StatusInputs(
        job=slurm_job(),
        before=SlurmJobStatus(),
        cluster="hpc1",
        attempt=Attempt(1, 0),
        row=row,
        final_message=None,
        pod_problem=None,
        companion=COMPANION,
        problem=None,
        now=NOON,
    )
    return replace(plain, **changed)
