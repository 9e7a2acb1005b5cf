"""Partitions in a SlurmCluster's status: what is shown, when it is written, and that it always fits."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from redbox_api.models import Amounts, Partition, PartitionLimits
from redbox_operator.api.partition_status import LISTED_AT_MOST, partition_statuses
from redbox_operator.api.slurmcluster_status import SlurmClusterStatus, cluster_status_of
from tests.operator.factories import cluster_facts

REQUEST_LIMIT = 1_500_000
"""What etcd accepts in one request, by default."""


def partition(name: str = "debug", **facts: Any) -> Partition:
    given = {
        "state": "UP",
        "total": Amounts(nodes=3, cpus=12, mem_mb=6000, gpus=2, gres={"gpu:tesla": 2}),
        "free": Amounts(nodes=2, cpus=9, mem_mb=5000, gpus=1),
        "largest_node": Amounts(nodes=1, cpus=4, mem_mb=2000, gpus=2),
        "limits": PartitionLimits(max_time_s=3600, max_nodes=2, max_gpus_per_node=2),
        "node_states": {"idle": 2, "mixed": 1},
    }
    return Partition(name=name, **{**given, **facts})


def status_after(
    *partitions: Partition, before: SlurmClusterStatus | None = None, use_is_due: bool = True
) -> SlurmClusterStatus:
    return cluster_status_of(
        replace(FACTS, partitions=partitions, before=before or FACTS.before, use_is_due=use_is_due)
    )


FACTS = cluster_facts()


def test_the_status_shows_what_is_free_beside_all_that_a_partition_has() -> None:
    status = status_after(
        partition(), partition("long", is_default=True, state="DRAIN", reason="disk (1 node)")
    )
    shown = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert shown["partitionCount"] == 2
    assert shown["partitionNames"] == ["debug", "long"]
    long, debug = shown["partitions"]
    assert (long["name"], long["default"], long["state"], long["reason"]) == (
        "long",
        True,
        "DRAIN",
        "disk (1 node)",
    )
    assert debug == {
        "name": "debug",
        "state": "UP",
        "default": False,
        "limits": {"maxTimeS": 3600, "maxNodes": 2},
        "nodes": {"idle": 2, "mixed": 1},
        "total": {"nodes": 3, "cpus": 12, "memMb": 6000, "gpus": 2},
        "free": {"nodes": 2, "cpus": 9, "memMb": 5000, "gpus": 1},
        "largestNode": {"nodes": 1, "cpus": 4, "memMb": 2000, "gpus": 2},
    }


def test_the_last_partitions_stay_while_red_box_has_listed_none() -> None:
    before = status_after(partition())
    assert cluster_status_of(replace(FACTS, before=before)).partitions == before.partitions


JOB_STARTED: dict[str, Any] = {
    "free": Amounts(nodes=1, cpus=5, mem_mb=3000),
    "node_states": {"idle": 1, "mixed": 2},
}


def test_what_jobs_alone_change_waits_until_it_is_due() -> None:
    before = status_after(partition())
    early = status_after(partition(**JOB_STARTED), before=before, use_is_due=False)
    assert early.partitions == before.partitions
    due = status_after(partition(**JOB_STARTED), before=before)
    assert due.partitions[0].free.cpus == 5


@pytest.mark.parametrize(
    "change",
    [
        {"state": "DOWN"},
        {"node_states": {"idle": 1, "down": 1, "mixed": 1}},
        {"limits": PartitionLimits(max_time_s=60)},
        {"is_default": True},
        {"total": Amounts(nodes=4, cpus=16, mem_mb=8000)},
    ],
)
def test_a_change_of_state_is_written_at_once_with_the_newest_free_resources(change: dict[str, Any]) -> None:
    before = status_after(partition())
    after = status_after(partition(**{**JOB_STARTED, **change}), before=before, use_is_due=False)
    assert after.partitions == partition_statuses([partition(**{**JOB_STARTED, **change})])


def test_a_partition_that_is_gone_leaves_at_once() -> None:
    before = status_after(partition(), partition("long"))
    assert len(status_after(partition(), before=before, use_is_due=False).partitions) == 1


def test_of_a_thousand_partitions_the_first_are_listed_and_the_default_is_among_them() -> None:
    many = [partition(f"p{number:04}") for number in range(999)]
    status = status_after(*many, partition("zz", is_default=True))
    assert status.partition_count == 1000
    assert [item.name for item in status.partitions[:2]] == ["zz", "p0000"]
    assert len(status.partitions) == LISTED_AT_MOST
    assert len(status.partition_names) == 1000


def test_the_status_of_a_hostile_cluster_fits_into_an_object() -> None:
    huge = Amounts(nodes=-1, cpus=10**40, mem_mb=10**40, gpus=10**40, gres={"x" * 9999: 1})
    states = {f"{number}{'😀' * 99}": 10**40 for number in range(500)}
    many = [
        partition(
            f"{'😀' * 25}{number}", state="\x1b[2J" * 999, node_states=states, total=huge, reason="😀\n" * 999
        )
        for number in range(5000)
    ]
    bad_names = [partition(""), partition("x" * 129), partition("a\x1b[2Jb")]
    status = status_after(*many, *bad_names)
    text = json.dumps(status.model_dump(mode="json", by_alias=True, exclude_none=True), ensure_ascii=False)
    assert len(text.encode()) < REQUEST_LIMIT
    assert text.isprintable()
    assert status.partitions[0].total.nodes == 0
    assert status.partitions[0].total.cpus == 2**53 - 1
    assert SlurmClusterStatus.model_validate_json(text) == status
