"""Whether a partition takes jobs, and why not."""

from __future__ import annotations

import pytest

from redbox_api.models import Amounts, Partition
from redbox_resourced.partitions.availability import availability_of

FREE = Amounts(nodes=0, cpus=0, mem_mb=0)


def partition(states: dict[str, int], state: str = "UP", reason: str | None = None) -> Partition:
    total = Amounts(nodes=sum(states.values()), cpus=4, mem_mb=4000)
    return Partition(name="p", state=state, total=total, free=FREE, node_states=states, reason=reason)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"idle": 3}, (True, "Up")),
        ({"allocated": 2, "mixed": 1, "completing": 1}, (True, "Up")),
        ({"idle": 1, "drained": 2}, (True, "PartlyAway")),
        ({"drained": 3}, (False, "Drained")),
        ({"draining": 1, "drained": 2}, (False, "Drained")),
        ({"down": 3}, (False, "Down")),
        ({"maint": 2, "drained": 1}, (False, "Maintenance")),
        ({}, (False, "NoNodes")),
    ],
)
def test_a_partition_accepts_jobs_while_any_of_its_nodes_does(
    states: dict[str, int], expected: tuple[bool, str]
) -> None:
    standing = availability_of(partition(states))
    assert (standing.accepts_jobs, standing.reason) == expected


@pytest.mark.parametrize("state", ["DOWN", "DRAIN", "INACTIVE"])
def test_a_partition_that_is_not_up_takes_none_however_its_nodes_are(state: str) -> None:
    standing = availability_of(partition({"idle": 3}, state))
    assert not standing.accepts_jobs
    assert state in standing.message


def test_the_message_has_slurms_reason_and_the_count() -> None:
    standing = availability_of(partition({"idle": 1, "drained": 2}, reason="disk (2 nodes)"))
    assert standing.message == ("2 of 3 nodes start no jobs: 2 drained. Slurm's reason: disk (2 nodes)")


def test_work_on_the_nodes_does_not_change_what_is_said() -> None:
    assert availability_of(partition({"idle": 2, "down": 1})) == availability_of(
        partition({"mixed": 2, "down": 1})
    )
