"""A worker's node: its size from limits, its options, its time."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.build.config.node_conf import BadSize, node_options, quantity, worker_size
from redbox_hosting.build.pods.worker import grace_seconds, time_limit_seconds
from tests.hosting.factories import node_set

DAY, HOUR = 86_400, 3_600


def sized(limits: dict[str, Any], **redbox: Any) -> NodeSet:
    return node_set(slurmd={"resources": {"limits": limits}}, redbox=redbox)


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("1Gi", 2**30),
        ("1.5Gi", 3 * 2**29),
        ("500m", Decimal("0.5")),
        ("2", 2),
        (3, 3),
        ("1e3", 1000),
        ("1G", 10**9),
        ("100M", 10**8),
        ("129e6", 129_000_000),
    ],
)
def test_a_quantity(written: object, number: object) -> None:
    assert quantity(written) == number


@pytest.mark.parametrize("written", ["lots", "", "-1Gi", "1 Gi", "1GiB", "0x10", "9" * 40, None])
def test_what_is_no_quantity_is_a_sentence(written: object) -> None:
    with pytest.raises(BadSize, match="is not a quantity: write"):
        quantity(written)


@pytest.mark.parametrize(
    ("limits", "redbox", "cpus", "memory_mib"),
    [
        # 8 GiB: 5 % is 409.6 MiB, and a quarter is /dev/shm.
        ({"cpu": "4", "memory": "8Gi"}, {}, 4, 5734),
        # 2 GiB: 256 MiB is more than 5 %.
        ({"cpu": "2", "memory": "2Gi"}, {}, 2, 1280),
        ({"cpu": "2", "memory": "2Gi"}, {"shmSize": 0}, 2, 1792),
        ({"cpu": "2", "memory": "2Gi"}, {"shmSize": "1Gi"}, 2, 768),
        ({"cpu": "2500m", "memory": "2Gi"}, {"shmSize": "0"}, 2, 1792),
        ({"cpu": "100m", "memory": "300Mi"}, {"shmSize": 0}, 1, 44),
        ({"cpu": "1"}, {}, 1, None),
        ({"memory": "1Gi"}, {"shmSize": 0}, None, 768),
        ({}, {}, None, None),
    ],
)
def test_the_size_of_a_node_follows_from_limits(
    limits: dict[str, Any], redbox: dict[str, Any], cpus: int | None, memory_mib: int | None
) -> None:
    size = worker_size(sized(limits, **redbox))
    assert (size.cpus, size.memory_mib) == (cpus, memory_mib)


def test_limits_that_leave_nothing_for_jobs_are_refused_with_the_cure() -> None:
    with pytest.raises(BadSize, match=r"limits.memory 256Mi leaves nothing for jobs.*redbox.shmSize"):
        worker_size(sized({"memory": "256Mi"}))


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (None, "Feature=w CPUs=4 RealMemory=5734"),
        ("Weight=2 Feature=fast,big", "Feature=w,fast,big CPUs=4 RealMemory=5734 Weight=2"),
        ("Features=w", "Feature=w CPUs=4 RealMemory=5734"),
        ("Weight=2\nTmpDisk=10", "Feature=w CPUs=4 RealMemory=5734 Weight=2 TmpDisk=10"),
    ],
)
def test_the_options_of_a_node(extra: str | None, expected: str) -> None:
    nodes = node_set(extraConf=extra)
    made = node_options(nodes, worker_size(nodes))
    assert (made.text, made.refused) == (expected, ())


@pytest.mark.parametrize(
    "extra",
    [
        *("Port=1", "NodeAddr=evil", "RealMemory=1", "Topology=", "a b", "State=DOWN"),
        *('Feature="a State=CLOUD CPUs=64"', 'Weight="1 State=CLOUD"', "Feature=a=b"),
    ],
)
def test_an_option_that_belongs_to_the_operator_is_refused(extra: str) -> None:
    nodes = node_set(extraConf=extra)
    made = node_options(nodes, worker_size(nodes))
    assert made.text == "Feature=w CPUs=4 RealMemory=5734"
    assert len(made.refused) == 1


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu"])
def test_gpus_are_gres(resource: str) -> None:
    nodes = sized({"cpu": 1, "memory": "2Gi", resource: 2}, shmSize=0)
    assert node_options(nodes, worker_size(nodes)).text == "Feature=w CPUs=1 RealMemory=1792 Gres=gpu:2"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("UNLIMITED", None),
        ("infinite", None),
        ("30", 1800),
        ("5:30", 330),
        ("2:00:00", 7200),
        ("1-0", DAY),
        ("1-12", DAY + 12 * HOUR),
        ("1-12:30", DAY + 12 * HOUR + 1800),
        ("2-01:02:03", 2 * DAY + 3723),
    ],
)
def test_a_time_limit_of_slurm(text: str, seconds: int | None) -> None:
    assert time_limit_seconds(text) == seconds


@pytest.mark.parametrize(
    ("longest", "drain_timeout", "seconds"),
    [
        (HOUR, None, 2 * HOUR),
        (None, None, 30 * DAY + HOUR),
        (90 * DAY, None, 30 * DAY + HOUR),
        (HOUR, 600, 600),
        (None, 0, 1),
    ],
)
def test_the_kubelet_waits_for_the_longest_job(
    longest: int | None, drain_timeout: int | None, seconds: int
) -> None:
    assert grace_seconds(longest, drain_timeout) == seconds
