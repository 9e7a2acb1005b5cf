"""Partitions, as a publisher of nodes reads them: what they have in whatever state, and what changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from redbox_api.client import RedboxClient
from redbox_api.errors import TooOld
from redbox_api.models import Partition, PartitionEvent
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.e2e.harness.faults import stopped
from tests.e2e.harness.redbox_jobs import PATIENCE_S
from tests.e2e.harness.redbox_server import RedboxServer, running

EMPTY = "Empty_one"


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    soon = {"partitions_every_s": 0.5, "reads_per_minute": 600}  # each change is waited for
    with running(bed, sections={"slurm": {"read_s": 4.0}, "jobs": soon}) as server:
        yield server


@pytest.fixture
async def reader(server: RedboxServer) -> AsyncIterator[RedboxClient]:
    async with server.client_of_account("redbox-system", "redbox-operator") as client:
        yield client


@pytest.fixture
def login(bed: Bed) -> Iterator[Host]:
    """Where an administrator of Slurm changes things; all is as it was afterwards."""
    host = bed.host("login")
    yield host
    host.run("scontrol", "update", "partition=debug", "state=UP")
    host.run("scontrol", "update", "node=n[1-3]", "state=resume", check=False)
    host.run("scontrol", "delete", f"partition={EMPTY}", check=False)


async def first(
    events: AsyncIterator[PartitionEvent], holds: Callable[[PartitionEvent], object]
) -> PartitionEvent:
    async with asyncio.timeout(PATIENCE_S):
        async for event in events:
            if holds(event):
                return event
    raise AssertionError("the watch has ended")


def of(name: str, holds: Callable[[Partition], object]) -> Callable[[PartitionEvent], object]:
    return lambda event: (
        event.type == "partition"
        and event.partition
        and event.partition.name == name
        and holds(event.partition)
    )


async def test_a_partition_says_all_that_a_node_of_it_could_offer(reader: RedboxClient, login: Host) -> None:
    async with asyncio.timeout(PATIENCE_S):  # other tests' jobs may still be ending
        while True:
            listed = {partition.name: partition for partition in (await reader.partitions()).items}
            if listed["debug"].node_states == {"idle": 3}:
                break
            await asyncio.sleep(0.5)
    assert listed.keys() == {"debug", "long", "GPU_big"}
    debug, long, gpu = listed["debug"], listed["long"], listed["GPU_big"]
    words = login.run("sinfo", "-h", "-p", "GPU_big", "-o", "%D %c %m").stdout.split()
    assert [gpu.total.nodes, gpu.total.cpus, gpu.total.mem_mb] == [int(word) for word in words]
    assert (debug.is_default, debug.limits.max_time_s, long.limits.max_time_s) == (True, 1800, None)
    assert (gpu.total.gpus, gpu.limits.max_gpus_per_node) == (2, 2)
    assert gpu.largest_node is not None
    assert gpu.largest_node.cpus == gpu.total.cpus
    assert (debug.state, debug.total.nodes) == ("UP", 3)


async def test_what_a_drained_or_down_partition_has_is_still_told(reader: RedboxClient, login: Host) -> None:
    listed = await reader.partitions()
    events = reader.watch_partitions(listed.revision)
    total = next(one for one in listed.items if one.name == "debug").total
    for state in ("DRAIN", "DOWN", "INACTIVE", "UP"):
        login.run("scontrol", "update", "partition=debug", f"state={state}")
        event = await first(events, of("debug", lambda seen, state=state: seen.state == state))  # type: ignore[misc]
        assert event.partition is not None
        assert event.partition.total == total
    login.run("scontrol", "update", "node=n[1-3]", "state=drain", "reason=new disks")
    drained = await first(events, of("debug", lambda seen: seen.node_states == {"drained": 3}))
    assert drained.partition is not None
    assert (drained.partition.total, drained.partition.free.nodes) == (total, 0)
    assert "new disks" in (drained.partition.reason or "")
    login.run("scontrol", "update", "node=n[1-3]", "state=down", "reason=cut off")
    down = await first(events, of("debug", lambda seen: seen.node_states == {"down": 3}))
    assert down.partition is not None
    assert down.partition.total == total
    login.run("scontrol", "update", "node=n[1-3]", "state=resume")
    await first(events, of("debug", lambda seen: seen.free.nodes == seen.total.nodes))


async def test_a_partition_without_nodes_comes_and_goes(reader: RedboxClient, login: Host) -> None:
    events = reader.watch_partitions((await reader.partitions()).revision)
    login.run("scontrol", "create", f"partition={EMPTY}")
    made = await first(events, of(EMPTY, lambda seen: seen.state == "UP"))
    assert made.partition is not None
    assert (made.partition.total.nodes, made.partition.largest_node) == (0, None)
    login.run("scontrol", "delete", f"partition={EMPTY}")
    gone = await first(events, lambda event: event.type == "gone")
    assert gone.partition is not None
    assert gone.partition.name == EMPTY
    resumed = reader.watch_partitions(made.revision)
    assert (await first(resumed, lambda event: event.type == "gone")).revision == gone.revision


async def test_while_slurm_is_away_bookmarks_say_since_when_and_nothing_is_gone(
    bed: Bed, reader: RedboxClient
) -> None:
    events = reader.watch_partitions((await reader.partitions()).revision)
    with stopped(bed.host("ctl"), "slurmctld"):
        event = await first(events, lambda event: event.type == "gone" or event.stale_since)
        assert event.type == "bookmark"
        assert (await reader.partitions()).stale_since == event.stale_since
    await first(events, lambda event: event.type == "bookmark" and event.stale_since is None)


async def test_a_watch_begins_anew_once_red_box_has(server: RedboxServer, reader: RedboxClient) -> None:
    revision = (await reader.partitions()).revision
    server.kill()
    server.start()
    with pytest.raises(TooOld):
        await anext(reader.watch_partitions(revision))
