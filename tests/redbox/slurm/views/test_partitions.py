"""Partitions, nodes and configuration, as each release prints them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redbox.slurm.commands import sacctmgr, scontrol, sinfo, srun
from redbox.slurm.commands.scontrol import PartitionRow
from redbox.slurm.errors import RequestRefused
from redbox.slurm.text.record_format import ParseReport, RecordFormat
from redbox.slurm.views.partitions import build_partitions, count_states, shown_state
from redbox_api.models import PartitionLimits
from tests.redbox.slurm.captured import RELEASES, output

FRAME = RecordFormat(sinfo.FIELDS, "~F~", "~R~")


def facts(name: str, **changes: object) -> PartitionRow:
    plain = PartitionRow(name, is_default=False, state="UP", limits=PartitionLimits())
    return replace(plain, **changes)  # type: ignore[arg-type]


def node(name: str, partition: str = "p", **changes: str) -> sinfo.NodeRow:
    plain = {
        "NodeList": name,
        "PartitionName": partition,
        "StateComplete": "idle",
        "CPUsState": "0/4/0/4",
        "Memory": "4000",
        "AllocMem": "0",
        "Gres": "(null)",
        "GresUsed": "(null)",
        "Features": "(null)",
        "Reason": "none",
    }
    row = sinfo.read_row(plain | changes)
    assert row is not None
    return row


@pytest.mark.parametrize("release", RELEASES)
def test_partitions_are_read_with_their_limits(release: str) -> None:
    partitions = {p.name: p for p in scontrol.read_partitions(output(release, "partitions.txt"))}
    assert list(partitions) == ["debug", "GPU_big", "empty", "off"]
    debug, big, off = partitions["debug"], partitions["GPU_big"], partitions["off"]
    assert debug.is_default
    assert debug.limits == PartitionLimits(max_time_s=1800, default_time_s=600, max_nodes=None)
    assert (big.limits.max_time_s, big.limits.max_nodes, big.limits.max_mem_mb_per_node) == (86400, 1, None)
    assert (off.state, off.limits.max_time_s) == ("DOWN", None)


@pytest.mark.parametrize("release", RELEASES)
def test_nodes_are_described_partition_by_partition_also_where_there_are_none(release: str) -> None:
    tally = ParseReport()
    nodes = sinfo.read_rows(output(release, "sinfo.txt"), FRAME, tally)
    assert tally.complete
    described = {
        p.name: p
        for p in build_partitions(scontrol.read_partitions(output(release, "partitions.txt")), nodes)
    }
    debug, empty = described["debug"], described["empty"]
    assert (debug.total.nodes, debug.total.cpus, debug.total.mem_mb) == (1, 8, 4000)
    assert (debug.free.nodes, debug.free.cpus) == (0, 0)  # it is drained
    assert debug.features == ["cpu", "intel"]
    assert debug.reason == "two words|and a bar (1 node)"
    assert (empty.total.nodes, empty.largest_node, empty.limits.max_time_s) == (0, None, None)


def test_overlapping_partitions_each_count_their_nodes_and_the_cluster_counts_each_once() -> None:
    nodes = [node("n1", "a"), node("n1", "b"), node("n2", "b")]
    a, b = build_partitions([facts("a"), facts("b")], nodes)
    assert (a.total.cpus, b.total.cpus) == (4, 8)
    assert count_states(nodes) == {"idle": 2}


def test_what_is_free_leaves_out_nodes_that_nobody_can_use() -> None:
    nodes = [
        node("n1", StateComplete="mixed", CPUsState="3/1/0/4", AllocMem="1000"),
        node("n2"),
        node("n3", StateComplete="idle+drain", CPUsState="0/0/4/4", Reason="disk"),
        node("n4", StateComplete="down+not_responding", CPUsState="0/0/4/4", Reason="disk"),
        node("n5", StateComplete="idle+maint"),
    ]
    partition = build_partitions([facts("p")], nodes)[0]
    assert (partition.total.nodes, partition.total.cpus) == (5, 20)
    assert (partition.free.nodes, partition.free.cpus, partition.free.mem_mb) == (1, 5, 7000)
    assert partition.node_states == {"mixed": 1, "idle": 1, "drained": 1, "down": 1, "maint": 1}
    assert partition.reason == "disk (2 nodes)"


def test_gpus_are_counted_with_their_types_and_what_is_taken_is_not_free() -> None:
    nodes = [
        node("n1", Gres="gpu:tesla:2(S:0-1),shm:1K", GresUsed="gpu:tesla:1(IDX:0),shm:0"),
        node("n2", Gres="gpu:a100:4", GresUsed="gpu:a100:0(IDX:N/A)"),
    ]
    partition = build_partitions([facts("p")], nodes)[0]
    assert partition.total.gpus == 6
    assert partition.free.gpus == 5
    assert partition.total.gres == {"gpu:a100": 4, "gpu:tesla": 2, "shm": 1024}
    assert partition.largest_node is not None
    assert partition.largest_node.gpus == 4


def test_what_a_node_has_at_most_is_said_thing_by_thing() -> None:
    nodes = [
        node("n1", CPUsState="0/64/0/64", Memory="1000"),
        node("n2", CPUsState="0/4/0/4", Memory="9000", Gres="gpu:a100:4,gpu:tesla:1"),
        node("n3", StateComplete="down+not_responding", Gres="gpu:a100:8", Memory="10"),
    ]
    partition = build_partitions([facts("p")], nodes)[0]
    largest = partition.largest_node
    assert largest is not None
    assert (largest.nodes, largest.cpus, largest.mem_mb, largest.gpus) == (1, 64, 9000, 8)
    assert largest.gres == {"gpu:a100": 8, "gpu:tesla": 1}
    assert partition.limits.max_gpus_per_node == 8
    assert build_partitions([facts("empty")], [])[0].limits.max_gpus_per_node is None


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("idle", "idle"),
        ("mixed+drain", "draining"),
        ("allocated+drain+planned", "draining"),
        ("idle+drain", "drained"),
        ("down+drain", "down"),
        ("idle+maint", "maint"),
        ("idle+cloud+powered_down", "idle"),
    ],
)
def test_a_node_is_shown_by_what_keeps_jobs_away_from_it(state: str, shown: str) -> None:
    assert shown_state(node("n1", StateComplete=state)) == shown


@pytest.mark.parametrize(
    ("state", "shown", "is_usable"),
    [
        ("idle", "idle", True),
        ("mixed", "mixed", True),
        ("allocated+", "allocated", True),
        ("idle~", "idle", True),
        ("drained*", "drained", False),
        ("draining", "draining", False),
        ("maint", "maint", False),
        ("mixed$", "maint", False),
        ("down*", "down", False),
        ("reserved", "idle", False),
        ("unknown", "unknown", False),
    ],
)
def test_before_21_08_a_node_has_one_word_and_a_sign(state: str, shown: str, *, is_usable: bool) -> None:
    seen = node("n1", StateComplete="", StateLong=state)
    assert (shown_state(seen), seen.usable) == (shown, is_usable)


def test_a_powered_down_cloud_node_is_free_for_slurm_would_start_it() -> None:
    assert (
        build_partitions([facts("p")], [node("n1", StateComplete="idle+cloud+powered_down")])[0].free.nodes
        == 1
    )


@pytest.mark.parametrize("broken", [{"CPUsState": "x"}, {"Memory": ""}, {"NodeList": ""}])
def test_a_node_that_cannot_be_read_is_dropped_and_counted(broken: dict[str, str]) -> None:
    fields = dict.fromkeys(sinfo.FIELDS, "1") | {"CPUsState": "0/4/0/4"} | broken
    text = FRAME.field_end.join(fields[name] for name in sinfo.FIELDS) + FRAME.record_end
    tally = ParseReport()
    assert sinfo.read_rows(text, FRAME, tally) == ()
    assert tally.dropped == 1


@pytest.mark.parametrize(
    ("release", "version"), list(zip(RELEASES, ("22.05.8", "24.11.5", "26.05.5"), strict=True))
)
def test_the_configuration_is_read(release: str, version: str) -> None:
    found = scontrol.read_configuration(output(release, "config.txt"))
    assert (found.cluster_name, found.version, found.accounting) == ("hpc1", version, True)
    assert (found.private_data, found.min_job_age_s) == (frozenset(), 600)
    assert not found.stores_environment
    assert not found.appends


def test_output_files_that_are_appended_to_are_noticed() -> None:
    assert scontrol.read_configuration("JobFileAppend           = 1\n").appends


def test_private_data_and_stored_environments_are_noticed() -> None:
    found = scontrol.read_configuration(
        "PrivateData             = jobs,usage\nAccountingStorageType   = accounting_storage/none\n"
        "AccountingStoreFlags    = job_comment,job_env\nMinJobAge = 2 sec\n"
    )
    assert found.private_data == {"jobs", "usage"}
    assert (found.accounting, found.stores_environment) == (False, True)


@pytest.mark.parametrize("release", RELEASES)
def test_there_is_no_federation_and_slurmdbd_hides_nothing(release: str) -> None:
    assert scontrol.read_federation(output(release, "federation.txt")) is None
    assert not sacctmgr.hides_jobs(output(release, "sacctmgr-config.txt"))


def test_a_federation_and_a_private_slurmdbd_are_noticed() -> None:
    assert scontrol.read_federation("Federation: fed1\nSelf:       hpc1:ctl:6817 ID:1\n") == "fed1"
    text = "PrivateData = jobs\n\nSlurmDBD configuration:\nPrivateData            = accounts,jobs\n"
    assert sacctmgr.hides_jobs(text)
    assert not sacctmgr.hides_jobs("PrivateData = jobs\n\nSlurmDBD configuration:\nPrivateData = none\n")
    assert sacctmgr.hides_jobs("PrivateData = none\n")  # then each user's agent is asked, as for hidden ones


@pytest.mark.parametrize("release", RELEASES)
def test_accounts_and_their_qos_are_read(release: str) -> None:
    assert sacctmgr.read_associations(output(release, "associations.txt")) == {
        "biology": ("normal",),
        "physics": ("long", "normal"),
    }
    assert sacctmgr.read_associations("") == {}


@pytest.mark.parametrize(("release", "kind"), [("22.05", "pmix_v4"), ("24.11", "pmix_v5")])
def test_the_kinds_of_mpi_are_read_and_those_that_start_singletons_refused(release: str, kind: str) -> None:
    kinds = srun.read_mpi_kinds(output(release, "mpi.txt"))
    assert {"pmix", "none", "pmi2", kind} <= kinds
    srun.check_mpi_kind("pmix", kinds)
    srun.check_mpi_kind(kind, kinds)
    for refused in ("pmi2", "none", "openmpi", "pmix_v9"):
        with pytest.raises(RequestRefused, match="pmix"):
            srun.check_mpi_kind(refused, kinds)


def test_a_slurm_without_pmix_has_no_kind_that_joins_ranks() -> None:
    kinds = srun.read_mpi_kinds(output("26.05", "mpi.txt"))
    assert kinds == {"none", "cray_shasta", "pmi2"}
    for refused in ("pmix", "pmi2"):
        with pytest.raises(RequestRefused, match="none"):
            srun.check_mpi_kind(refused, kinds)
