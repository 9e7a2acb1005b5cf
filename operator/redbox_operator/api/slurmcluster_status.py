"""The status of a SlurmCluster: whether its red-box answers, what Slurm has, how its SlurmJobs are. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from redbox_api.models import Cluster
from redbox_kube.slurm_cluster import Delivery, SlurmCluster, SlurmClusterKind
from redbox_operator.api.conditions import NewCondition, conditions_of
from redbox_operator.api.slurmjob_status import StatusCondition

NAMED_AT_MOST = 20


class ClusterCondition(StrEnum):
    """What is said of a SlurmCluster."""

    REACHABLE = "Reachable"  # its red-box answers the operator
    CURRENT = "Current"  # Slurm answers red-box: what is told of jobs is not old
    ORPHANED = "JobsOrphaned"  # jobs in Slurm have lost their SlurmJob
    HOLDS_BACK = "HoldsBack"  # companions request what their jobs take
    IN_USE = "InUse"  # it is being deleted, and unfinished SlurmJobs still need it


class SlurmClusterStatus(SlurmClusterKind):
    """All that is known of a SlurmCluster."""

    workload_manager: str | None = None
    version: Annotated[str | None, Field(description="Of Slurm.")] = None
    redbox_version: str | None = None
    accounting: Annotated[bool | None, Field(description="Whether Slurm keeps accounts of ended jobs.")] = (
        None
    )
    partitions: Annotated[int | None, Field(description="How many there are.")] = None
    partition_names: Annotated[list[str], Field(max_length=4096)] = []
    nodes: Annotated[dict[str, int], Field(description="How many nodes are in which state of Slurm's.")] = {}
    jobs: Annotated[dict[str, int], Field(description="How many SlurmJobs are in which phase.")] = {}
    conditions: Annotated[
        list[StatusCondition],
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = []
    observed_generation: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """All that the status is made from."""

    cluster: SlurmCluster
    before: SlurmClusterStatus
    trouble: str | None  # why red-box does not answer
    reason: str  # the same in one word
    told: Cluster | None  # red-box's own word, if it gave one now
    partitions: Sequence[str] | None
    stale_since: datetime | None
    phases: Iterable[str]
    orphans: Sequence[str]  # ids of jobs in Slurm
    in_use_by: Sequence[str]  # SlurmJobs, by namespace/name
    gateways: Sequence[str] | None  # nodes, where they are to hold jobs back; None: we may not look
    now: datetime


def cluster_status_of(facts: ClusterFacts) -> SlurmClusterStatus:
    """What was told before stays where red-box does not answer, beside the condition that says so."""
    told, before = facts.told, facts.before
    new: dict[str, object] = {"jobs": dict(sorted(Counter(facts.phases).items()))}
    if told is not None:
        new |= {
            "workload_manager": told.workload_manager,
            "version": told.version,
            "redbox_version": told.redbox_version,
            "accounting": told.accounting,
            "nodes": dict(sorted(told.nodes.items())),
        }
    if facts.partitions is not None:
        new |= {"partitions": len(facts.partitions), "partition_names": sorted(facts.partitions)}
    generation = facts.cluster.metadata.get("generation")
    conditions = conditions_of(before.conditions, _said(facts), facts.now, generation)
    return before.model_copy(update={**new, "conditions": conditions, "observed_generation": generation})


def _said(facts: ClusterFacts) -> Iterator[NewCondition]:
    reachable = facts.trouble is None
    message = facts.trouble or ""
    yield NewCondition(ClusterCondition.REACHABLE, holds=reachable, reason=facts.reason, message=message)
    if reachable:
        since = facts.stale_since
        words = f"Slurm has not answered red-box since {since:%Y-%m-%d %H:%M:%S} UTC" if since else ""
        yield NewCondition(
            ClusterCondition.CURRENT, holds=since is None, reason="Stale" if since else "Fresh", message=words
        )
    if facts.orphans:
        words = f"jobs in Slurm whose SlurmJob is gone: {_some(facts.orphans)}"
        yield NewCondition(ClusterCondition.ORPHANED, holds=True, reason="SlurmJobGone", message=words)
    if facts.cluster.spec.hold_back:
        yield _holds_back(facts)
    if "deletionTimestamp" in facts.cluster.metadata and facts.in_use_by:
        words = (
            f"waits for unfinished SlurmJobs that went there: {_some(facts.in_use_by)}. Delete them, or set "
            "spec.abandonJobs and delete them"
        )
        yield NewCondition(ClusterCondition.IN_USE, holds=True, reason="SlurmJobsUnfinished", message=words)


def _holds_back(facts: ClusterFacts) -> NewCondition:
    if facts.cluster.spec.delivery is Delivery.VIRTUAL:
        return NewCondition(ClusterCondition.HOLDS_BACK, holds=True, reason="VirtualNodes")
    if facts.gateways is None:
        words = "an operator that is limited to some namespaces may not count gateways: set holdBack to false"
        return NewCondition(ClusterCondition.HOLDS_BACK, holds=False, reason="GatewaysUnknown", message=words)
    if len(facts.gateways) == 1:
        return NewCondition(ClusterCondition.HOLDS_BACK, holds=True, reason="OneGateway")
    words = (
        f"holdBack needs exactly one gateway node, since each has all of a partition, and there are "
        f"{len(facts.gateways)} ({_some(facts.gateways) or 'none'}): label one only, or set holdBack to false"
    )
    return NewCondition(ClusterCondition.HOLDS_BACK, holds=False, reason="NotOneGateway", message=words)


def holds_back(cluster: SlurmCluster) -> bool:
    """Whether companions request what their jobs take. Of gateways, the status says how many there are."""
    if not cluster.spec.hold_back or cluster.spec.delivery is Delivery.VIRTUAL:
        return cluster.spec.hold_back
    said = cluster.status.get("conditions", [])
    return any(one["type"] == ClusterCondition.HOLDS_BACK and one["status"] == "True" for one in said)


def _some(names: Sequence[str]) -> str:
    listed = ", ".join(sorted(names)[:NAMED_AT_MOST])
    more = len(names) - NAMED_AT_MOST
    return f"{listed} and {more} more" if more > 0 else listed
