"""The status of a SlurmCluster or SlurmEndpoint: reachability, Slurm's nodes and partitions, jobs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import AwareDatetime, Field

from redbox_api.models import Cluster, Partition
from redbox_clusters.slurm_cluster import NOT_REPORTED, PODS_DISABLED, PODS_READY, Delivery, SlurmCluster
from redbox_kube.api.events import NORMAL, WARNING
from redbox_kube.status.conditions import (
    ConditionEvent,
    ConditionStatus,
    NewCondition,
    StatusCondition,
    conditions_of,
)
from redbox_kube.status.models import StatusPart
from redbox_operator.api.partition_status import (
    LISTED_AT_MOST,
    PartitionStatus,
    bounded_counts,
    differ_in_use_only,
    partition_names,
    partition_statuses,
)
from redbox_shared.printable import printable

NAMED_AT_MOST = 20
LONGEST_VERSION = 64
ROLES_AT_MOST = 16
EXPIRY_WARNINGS = (
    (timedelta(0), "Expired"),
    (timedelta(hours=1), "WithinAnHour"),
    (timedelta(days=1), "WithinADay"),
)
"""Reasons of CredentialsExpire, by how much time is left at most."""


class ClusterCondition(StrEnum):
    """Condition types of a SlurmCluster."""

    REACHABLE = "Reachable"  # its red-box answers the operator
    CURRENT = "Current"  # Slurm answers red-box: states of jobs are not old
    ORPHANED = "JobsOrphaned"  # the SlurmJobs of jobs in Slurm are gone
    CREDENTIALS_EXPIRE = "CredentialsExpire"  # with what red-box logs in: in a day, in an hour, or it has
    HOLDS_BACK = "HoldsBack"  # companions request the resources of their jobs
    PODS_READY = PODS_READY  # pods on its virtual nodes run; resourced writes it
    IN_USE = "InUse"  # it is being deleted, and unfinished SlurmJobs or pods still need it


GOOD = frozenset(
    {
        ClusterCondition.REACHABLE,
        ClusterCondition.CURRENT,
        ClusterCondition.HOLDS_BACK,
        ClusterCondition.PODS_READY,
    }
)
"""Conditions whose change to False is a warning."""


class SlurmClusterStatus(StatusPart):
    """The status of a SlurmCluster, as the operator writes it."""

    workload_manager: str | None = None
    version: str | None = Field(None, description="Slurm's version.")
    redbox_version: str | None = None
    accounting: bool | None = Field(None, description="Whether Slurm has accounting of ended jobs.")
    operator_roles: list[str] | None = Field(
        None,
        max_length=ROLES_AT_MOST,
        description="The roles that red-box gives this operator: without requeue it can requeue no job.",
    )
    credentials_expire_at: AwareDatetime | None = Field(
        None, description="When the SSH certificate ends with which red-box logs in, if it has one."
    )
    partition_count: int | None = Field(None, description="Number of partitions.")
    partition_names: list[str] = Field([], max_length=4096)
    partitions: list[PartitionStatus] = Field(
        [],
        max_length=LISTED_AT_MOST,
        description="The partitions with their free resources: the default one, then by name, at most "
        f"{LISTED_AT_MOST}.",
    )
    nodes: dict[str, int] = Field({}, description="Number of nodes by their state in Slurm.")
    jobs: dict[str, int] = Field({}, description="Number of SlurmJobs by phase.")
    conditions: list[StatusCondition] = Field(
        [], json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
    observed_generation: int | None = None


class SlurmEndpointStatus(SlurmClusterStatus):
    """The status of a SlurmEndpoint, as the operator writes it."""

    audience: str | None = Field(
        None, description="The audience of tokens for its red-box: the one that its settings must have."
    )


@dataclass(frozen=True, slots=True)
class ClusterUsers:
    """What keeps a SlurmCluster that is being deleted."""

    jobs: Sequence[str] = ()
    """SlurmJobs, by namespace/name."""
    pods: Sequence[str] = ()
    """Pods that run as jobs, each with its job."""

    def __bool__(self) -> bool:
        return bool(self.jobs or self.pods)

    @property
    def reason(self) -> str:
        return "SlurmJobsUnfinished" if self.jobs else "PodsUnfinished"

    @property
    def message(self) -> str:
        jobs = f"unfinished SlurmJobs that were submitted there: {_some(self.jobs)}" if self.jobs else ""
        pods = f"pods that run there as jobs: {_some(self.pods)}" if self.pods else ""
        return (
            f"waits for {' and '.join(filter(None, (jobs, pods)))}. Delete them, or set spec.abandonJobs"
            + (" and delete them" if self.jobs else "")
        )


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """All that the status is built from."""

    cluster: SlurmCluster
    before: SlurmClusterStatus  # without the conditions that resourced has written
    trouble: str | None  # why red-box does not answer
    reason: str  # the same in one word
    description: Cluster | None  # from red-box, where it has answered
    roles: Sequence[str] | None  # of the operator at red-box; None: red-box has not said
    partitions: Sequence[Partition] | None  # None: red-box has not listed them
    use_is_due: bool  # changes by jobs alone are written, too
    stale_since: datetime | None
    phases: Iterable[str]
    orphans: Sequence[str]  # ids of jobs in Slurm
    in_use_by: ClusterUsers
    gateways: Sequence[str] | None  # nodes, where they hold jobs back; None: no right to list them
    pods_reported: bool  # resourced has written the condition PodsReady
    now: datetime


def cluster_status_of(facts: ClusterFacts) -> SlurmClusterStatus:
    """The new status. Where red-box does not answer, the previous description stays beside that condition."""
    description, before = facts.description, facts.before
    new: dict[str, object] = {"jobs": dict(sorted(Counter(facts.phases).items()))}
    if description is not None:
        new |= {
            "workload_manager": printable(description.workload_manager[:LONGEST_VERSION]),
            "version": printable(description.version[:LONGEST_VERSION]),
            "redbox_version": printable(description.redbox_version[:LONGEST_VERSION]),
            "accounting": description.accounting,
            "credentials_expire_at": description.credentials_expire_at,
            "nodes": bounded_counts(description.nodes),
        }
    if facts.roles is not None:
        new["operator_roles"] = [
            printable(role[:LONGEST_VERSION]) for role in sorted(facts.roles)[:ROLES_AT_MOST]
        ]
    if isinstance(before, SlurmEndpointStatus):
        new["audience"] = facts.cluster.spec.audience
    if facts.partitions is not None:
        statuses = partition_statuses(facts.partitions)
        kept = not facts.use_is_due and differ_in_use_only(before.partitions, statuses)
        new |= {
            "partition_count": len(facts.partitions),
            "partition_names": partition_names(facts.partitions),
            "partitions": before.partitions if kept else statuses,
        }
    generation = facts.cluster.generation
    conditions = conditions_of(before.conditions, _conditions(facts), facts.now, generation)
    return before.model_copy(update={**new, "conditions": conditions, "observed_generation": generation})


def _conditions(facts: ClusterFacts) -> Iterator[NewCondition]:
    reachable = facts.trouble is None
    message = facts.trouble or ""
    yield NewCondition(ClusterCondition.REACHABLE, facts.reason, message, holds=reachable)
    if reachable:
        since = facts.stale_since
        message = f"Slurm has not answered red-box since {since:%Y-%m-%d %H:%M:%S} UTC" if since else ""
        yield NewCondition(
            ClusterCondition.CURRENT, "Stale" if since else "Fresh", message, holds=since is None
        )
    yield from _credentials_expire(facts)
    if facts.orphans:
        message = f"jobs in Slurm whose SlurmJob is gone: {_some(facts.orphans)}"
        yield NewCondition(ClusterCondition.ORPHANED, "SlurmJobGone", message, holds=True)
    if facts.cluster.spec.hold_back:
        yield _holds_back(facts)
    if facts.cluster.spec.pods.enabled and not facts.pods_reported:
        message = (
            "resourced has not reported whether it runs pods: install it with the chart's resourced.enabled "
            "and resourced.pods.enabled"
        )
        yield NewCondition(ClusterCondition.PODS_READY, NOT_REPORTED, message, holds=False)
    if facts.cluster.being_deleted and facts.in_use_by:
        users = facts.in_use_by
        yield NewCondition(ClusterCondition.IN_USE, users.reason, users.message, holds=True)


def _credentials_expire(facts: ClusterFacts) -> Iterator[NewCondition]:
    """A red-box that cannot log in any more does not describe Slurm: then the previous time counts."""
    now, description = facts.now, facts.description
    at = description.credentials_expire_at if description else facts.before.credentials_expire_at
    reason = next((reason for left, reason in EXPIRY_WARNINGS if at is not None and at - now <= left), None)
    if at is None or reason is None:
        return
    verb = "expired" if reason == "Expired" else "expires"
    message = (
        f"the SSH certificate with which red-box logs in {verb} at {at:%Y-%m-%d %H:%M:%S} UTC: replace it. "
        "While there is no valid one, jobs go on in Slurm and their states are stale"
    )
    yield NewCondition(ClusterCondition.CREDENTIALS_EXPIRE, reason, message, holds=True)


def _holds_back(facts: ClusterFacts) -> NewCondition:
    if facts.cluster.spec.delivery is Delivery.VIRTUAL:
        return NewCondition(ClusterCondition.HOLDS_BACK, "VirtualNodes", holds=True)
    if facts.gateways is None:
        message = (
            "an operator that is limited to some namespaces cannot count gateways: set holdBack to false"
        )
        return NewCondition(ClusterCondition.HOLDS_BACK, "GatewaysUnknown", message, holds=False)
    if len(facts.gateways) == 1:
        return NewCondition(ClusterCondition.HOLDS_BACK, "OneGateway", holds=True)
    message = (
        f"holdBack needs exactly one gateway node, since each offers the whole partition, but there are "
        f"{len(facts.gateways)} ({_some(facts.gateways) or 'none'}): label one only, or set holdBack to false"
    )
    return NewCondition(ClusterCondition.HOLDS_BACK, "NotOneGateway", message, holds=False)


def cluster_events(before: SlurmClusterStatus, after: SlurmClusterStatus) -> list[ConditionEvent]:
    """The events about the changes from one to the other."""
    previous = {item.type: (item.status, item.reason) for item in before.conditions}
    return [
        ConditionEvent(_severity(item), item.reason, item.message or f"{item.type}: {item.reason}", item)
        for item in after.conditions
        if previous.get(item.type) != (item.status, item.reason)
    ]


def _severity(condition: StatusCondition) -> str:
    good = condition.type in GOOD
    return NORMAL if (condition.status is ConditionStatus.TRUE) is good else WARNING


def is_reported(condition: StatusCondition, cluster: SlurmCluster) -> bool:
    """Whether resourced has written it: the operator neither repeats nor removes such a condition.

    That pods are disabled is out of date once they are enabled, also where resourced has no right to say so.
    """
    outdated = {NOT_REPORTED, *([PODS_DISABLED] if cluster.spec.pods.enabled else ())}
    return condition.type == ClusterCondition.PODS_READY and condition.reason not in outdated


def holds_back(cluster: SlurmCluster) -> bool:
    """Whether companions request their jobs' resources. With gateways a condition of the status decides."""
    if not cluster.spec.hold_back or cluster.spec.delivery is Delivery.VIRTUAL:
        return cluster.spec.hold_back
    conditions = cluster.status.get("conditions", [])
    return any(
        item["type"] == ClusterCondition.HOLDS_BACK and item["status"] == "True" for item in conditions
    )


def _some(names: Sequence[str]) -> str:
    listed = ", ".join(sorted(names)[:NAMED_AT_MOST])
    more = len(names) - NAMED_AT_MOST
    return f"{listed} and {more} more" if more > 0 else listed


def differ_in_times_only(written: SlurmClusterStatus, after: SlurmClusterStatus) -> bool:
    times = {"conditions": {"__all__": {"last_transition_time"}}}
    return written.model_dump(exclude=times) == after.model_dump(exclude=times)
