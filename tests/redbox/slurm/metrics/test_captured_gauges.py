"""Slurm's metrics from what three releases printed; of 26.05 beside slurmctld's own of the same moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from redbox.core.gauges import FamilyOfGauges
from redbox.slurm.commands import counted_jobs, counted_nodes, scontrol, sdiag
from redbox.slurm.metrics.job_gauges import QueueCounts, job_gauges, user_and_account_gauges
from redbox.slurm.metrics.node_gauges import node_gauges, partition_gauges
from redbox.slurm.metrics.scheduler_gauges import scheduler_gauges
from redbox.slurm.text.record_format import ParseReport, RecordFormat
from tests.redbox.slurm.captured import RELEASES, output

Numbers = Mapping[tuple[str, str], float]
NATIVE = "26.05"
OF_THE_LOOK = frozenset({
    "slurm_sched_stats_timestamp", "slurm_sdiag_job_states_ts", "slurm_sdiag_latency",
    "slurm_server_thread_cnt", "slurm_sdiag_jobs_pending", "slurm_sdiag_jobs_running",
    "slurm_agent_thread_cnt", "slurm_agent_cnt", "slurm_node_memory_free_bytes",
    "slurm_partition_nodes_mem_free",
})  # fmt: skip
MORE_THAN_THE_REASON = "slurm_partition_jobs_wait_part_node_limit"
"""slurmctld tests a bit of the reason's number, so that PartitionDown and others count, too."""


def queue(release: str) -> QueueCounts:
    report = ParseReport()
    record_format = RecordFormat(counted_jobs.FIELDS, "~F~", "~R~")
    jobs = list(counted_jobs.read_jobs(output(release, "counted-jobs.txt"), record_format, report))
    assert report.complete
    assert len(jobs) > 20
    return QueueCounts.of(Counter(jobs))


def nodes(release: str) -> list[counted_nodes.CountedNode]:
    report = ParseReport()
    found = list(counted_nodes.read_nodes(output(release, "counted-nodes.txt"), report))
    assert report.complete
    return found


def families(release: str) -> dict[str, FamilyOfGauges]:
    jobs, there = queue(release), nodes(release)
    partitions = [row.name for row in scontrol.read_partitions(output(release, "counted-partitions.txt"))]
    return {
        "jobs": job_gauges(jobs.cluster),
        "nodes": node_gauges({node.name: node for node in there}, 100),
        "partitions": partition_gauges(partitions, there, jobs.partitions, 100),
        "scheduler": scheduler_gauges(sdiag.read_json(output(release, "sdiag.json"))),
        "jobs-users-accts": user_and_account_gauges(jobs, 100),
    }


def numbers(family: FamilyOfGauges) -> Numbers:
    return {
        (gauge.name, value): number
        for gauge in family.gauges
        if gauge.name.startswith("slurm_")
        for value, number in gauge.samples.items()
    }


def own(family: str) -> Numbers:
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for metric in text_string_to_metric_families(output(NATIVE, f"own-{family}.txt"))
        for sample in metric.samples
    }


@pytest.mark.parametrize("family", ["jobs", "nodes", "partitions", "scheduler", "jobs-users-accts"])
def test_names_labels_and_numbers_are_those_of_slurmctld(family: str) -> None:
    ours, theirs = numbers(families(NATIVE)[family]), own(family)
    assert ours.keys() == theirs.keys()
    compared = {key for key in theirs if key[0] not in OF_THE_LOOK | {MORE_THAN_THE_REASON}}
    assert {key: (ours[key], theirs[key]) for key in compared if ours[key] != theirs[key]} == {}


@pytest.mark.parametrize("release", RELEASES)
def test_the_same_jobs_are_counted_alike_on_each_release(release: str) -> None:
    found = {name: numbers(family) for name, family in families(release).items()}
    jobs, partitions = found["jobs"], found["partitions"]
    assert jobs["slurm_jobs_timeout", ""] == 1
    assert jobs["slurm_jobs_failed", ""] >= 5
    assert jobs["slurm_jobs_running", ""] >= 2
    assert jobs["slurm_jobs_cpus_alloc", ""] >= 2
    assert jobs["slurm_jobs_memory_alloc", ""] >= 512
    assert jobs["slurm_jobs_nodes_alloc", ""] == 1
    assert jobs["slurm_jobs_hold", ""] >= 1335  # an array of 1334 tasks, and one job
    assert partitions["slurm_partitions", ""] == 4
    assert partitions["slurm_partition_nodes", "empty"] == 0
    assert partitions["slurm_partition_nodes_draining", "debug"] == 1
    assert partitions["slurm_partition_jobs_pending", "debug"] > 1335
    assert found["nodes"]["slurm_nodes_draining", ""] == 1
    assert found["nodes"]["slurm_node_cpus", "n1"] == 8
    assert found["jobs-users-accts"]["slurm_user_jobs_completed", "bob"] >= 1


@pytest.mark.parametrize("release", RELEASES)
def test_sdiag_as_text_has_what_it_has_as_json_but_for_the_sums(release: str) -> None:
    told = sdiag.read_text(output(release, "sdiag.txt"))
    as_json = sdiag.read_json(output(release, "sdiag.json"))
    sums = {"schedule_cycle_tot", "schedule_cycle_depth", "bf_cycle_tot", "bf_depth_tot", "bf_depth_try_tot"}
    sums |= {"bf_queue_len_tot", "bf_table_size_tot"}
    assert told.keys() >= as_json.keys() - sums
    moments = {name.removeprefix("slurm_") for name in OF_THE_LOOK}
    differ = {name for name in as_json if name in told and as_json[name] != told[name]}
    assert differ <= moments
    assert as_json.keys() <= sdiag.STATISTICS.keys()


@pytest.mark.parametrize(
    ("state", "takes_jobs"),
    [
        ("IDLE", 1),
        ("MIXED+PLANNED", 1),
        ("ALLOCATED", 1),
        ("IDLE+CLOUD+POWERED_DOWN", 1),
        ("IDLE+DRAIN", 0),
        ("IDLE*+DRAIN", 0),
        ("ALLOCATED+DRAIN", 0),
        ("IDLE+FAIL", 0),
        ("DOWN", 0),
        ("DOWN+DRAIN", 0),
        ("FUTURE", 0),
    ],
)
def test_a_node_that_is_drained_takes_no_jobs_though_it_is_idle(state: str, takes_jobs: int) -> None:
    """The alert on partitions without nodes reads it."""
    base, flags = counted_nodes.read_node_state(state)
    node = replace(nodes(NATIVE)[0], partitions=("debug",), base=base, flags=flags)
    (samples,) = (
        gauge.samples
        for gauge in partition_gauges(["debug", "empty"], [node], {}, 100).gauges
        if gauge.name == "redbox_slurm_partition_nodes_taking_jobs"
    )
    assert samples == {"debug": takes_jobs, "empty": 0}
