"""Slurm's metrics as red-box makes them; on 26.05 number by number beside slurmctld's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from redbox.agents.pool import AgentPool
from redbox.core.gauges import MetricFamily
from redbox.slurm.settings import MetricsSettings, SlurmSettings
from redbox.slurm.slurm_manager import SlurmManager
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until
from tests.e2e.harness.login_node import CAROL, HostTransport

Numbers = dict[tuple[str, str], float]
"""By the gauge's name and its label's value."""
OWN_PATHS = {MetricFamily.USERS_ACCOUNTS: "jobs-users-accts"}
NEVER_THE_SAME = frozenset({
    "slurm_sched_stats_timestamp", "slurm_sdiag_job_states_ts", "slurm_sdiag_latency",
    "slurm_server_thread_cnt", "slurm_sdiag_jobs_pending", "slurm_sdiag_jobs_running",
    "slurm_node_memory_free_bytes", "slurm_partition_nodes_mem_free", "slurm_agent_thread_cnt",
    "slurm_partition_jobs_wait_part_node_limit",
})  # fmt: skip
"""Times and moments of the look itself; of the last slurmctld counts PartitionDown and others, too."""


@pytest.fixture(scope="module")
def busy(login: Host) -> Iterator[None]:
    """Jobs in many states: running on all and on GPUs, held, waiting for nodes, an array, ended each way."""

    def submit(user: str, *options: str, script: str = "exec sleep 600") -> str:
        argv = ("sbatch", "--parsable", "-o/dev/null", "-D/tmp", *options)
        return login.run(*argv, user=user, stdin=f"#!/bin/sh\n{script}\n").stdout.strip()

    ended = [
        submit("bob", script="exit 0"),
        submit("bob", script="exit 3"),
        submit("bob", "--array=1-3", script="true"),
    ]
    running = [
        submit("alice", "-N2", "--mem=200"),
        submit("alice", "-pGPU_big", "--gres=gpu:1", "--mem=1G", "-Abiology"),
        submit("bob", "-n2", "--mem=100"),
    ]
    cancelled = submit("bob")
    waiting = [
        submit("alice", "-H", "-N3"),
        submit("alice", "-H", "--array=0-9%2", "-plong"),
        submit("bob", "-N3", "--exclusive"),
        submit("bob", "--begin=now+1hour", "--array=5,7,9"),
    ]
    gone = submit("bob", "-H", "--array=1-4")

    def shows(ids: list[str], *states: str) -> bool:
        told = login.run("squeue", "-h", "-tall", f"-j{','.join(ids)}", "-o%T", check=False).stdout.split()
        return bool(told) and set(told) <= set(states)

    wait_until(lambda: shows([*running, cancelled], "RUNNING"), 120, "the jobs do not run")
    login.run("scancel", cancelled, gone, user="bob")
    wait_until(
        lambda: shows([*ended, cancelled, gone], "COMPLETED", "FAILED", "CANCELLED"),
        120,
        "the jobs do not end",
    )
    yield
    for user in ("alice", "bob"):
        mine = [*running, *waiting]
        login.run("scancel", f"--user={user}", *mine, user=user, check=False)


@pytest.fixture
async def agents(login: Host) -> AsyncIterator[AgentPool]:
    async with AgentPool(HostTransport(login)) as pool:
        yield pool


def manager(agents: AgentPool) -> SlurmManager:
    """One that has not looked yet."""
    return SlurmManager(agents, CAROL, SlurmSettings(metrics=MetricsSettings(users_accounts=True)))


async def numbers_of(manager: SlurmManager, family: MetricFamily) -> Numbers:
    found = await manager.metrics.family(family)
    return {
        (gauge.name, value): number
        for gauge in found.gauges
        if gauge.name.startswith("slurm_")
        for value, number in gauge.samples.items()
    }


def own_numbers(login: Host, family: MetricFamily) -> Numbers:
    """slurmctld's, by plain HTTP."""
    path = OWN_PATHS.get(family, family.value)
    text = login.run("curl", "--silent", "--fail", f"http://ctl:6817/metrics/{path}").stdout
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for metric in text_string_to_metric_families(text)
        for sample in metric.samples
    }


@pytest.mark.usefixtures("busy")
async def test_jobs_nodes_and_scheduler_are_counted(agents: AgentPool) -> None:
    slurm = manager(agents)
    jobs = await numbers_of(slurm, MetricFamily.JOBS)
    assert jobs["slurm_jobs_running", ""] >= 3
    assert jobs["slurm_jobs_gpus_alloc", ""] == 1
    assert 2 <= jobs["slurm_jobs_nodes_alloc", ""] <= 3
    assert jobs["slurm_jobs_hold", ""] >= 11
    partitions = await numbers_of(slurm, MetricFamily.PARTITIONS)
    assert partitions["slurm_partition_jobs_pending", "long"] >= 10
    assert partitions["slurm_partition_jobs_max_job_nodes_nohold", "debug"] >= 3
    assert partitions["slurm_partition_nodes", "GPU_big"] == 1
    nodes = await numbers_of(slurm, MetricFamily.NODES)
    assert nodes["slurm_node_gpus_alloc", "n3"] == 1
    assert nodes["slurm_nodes", ""] == 3
    assert nodes["slurm_node_memory_bytes", "n1"] == 4000
    users = await numbers_of(slurm, MetricFamily.USERS_ACCOUNTS)
    assert users["slurm_user_jobs_running", "alice"] >= 2
    assert users["slurm_account_jobs_gpus_alloc", "biology"] == 1
    scheduler = await numbers_of(slurm, MetricFamily.SCHEDULER)
    assert scheduler["slurm_sdiag_jobs_submitted", ""] >= 10


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("family", MetricFamily)
async def test_each_number_is_that_of_slurmctld(
    bed: Bed, login: Host, agents: AgentPool, family: MetricFamily
) -> None:
    if not bed.plan.options.release.has_metrics:
        pytest.skip("slurmctld has metrics since 25.11")
    for _ in range(10):  # ours is of the same moment where slurmctld's are the same before and after it
        before = steady(own_numbers(login, family))
        ours = steady(await numbers_of(manager(agents), family))
        if steady(own_numbers(login, family)) == before:
            break
    else:
        pytest.fail("slurmctld's numbers do not come to rest")
    assert ours.keys() == before.keys()
    assert {key: (ours[key], before[key]) for key in before if ours[key] != before[key]} == {}


def steady(numbers: Numbers) -> Numbers:
    """Those that do not differ from look to look."""
    return {key: 0 if key[0] in NEVER_THE_SAME else number for key, number in numbers.items()}
