"""Which virtual nodes there should be, and when one may go."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from redbox_resourced.nodes.desired import (
    DesiredNode,
    desired_nodes,
    desired_nodes_of_deleted,
    desired_nodes_of_invalid,
)
from redbox_resourced.nodes.manifest import provider_id
from redbox_resourced.partitions.overrides import Overrides
from tests.resourced.factories import followed, node, partition

NONE = Overrides()


def by_name(desired: list[DesiredNode]) -> dict[str, DesiredNode]:
    return {item.partition: item for item in desired}


def test_each_partition_has_a_node() -> None:
    desired, left_out = desired_nodes(followed(partition("debug"), partition("GPU_big")), [], NONE, 20)
    assert {item.node for item in desired} == {"hpc1.debug", "hpc1.gpu-big-5f87b3"}
    assert all(item.advertised and item.availability and not item.delete for item in desired)
    assert left_out == 0


def test_a_partition_that_slurm_no_longer_lists_is_cordoned_and_goes_in_time() -> None:
    desired, _ = desired_nodes(followed(partition("debug")), [node("debug"), node("old")], NONE, 20)
    old = by_name(desired)["old"]
    assert old.delete
    assert old.after_grace
    assert old.availability is not None
    assert (old.availability.accepts_jobs, old.availability.reason) == (False, "Gone")
    assert old.advertised is None


@pytest.mark.parametrize("why", ["empty", "stale", "no answer"])
def test_a_partition_is_not_gone_because_nobody_said_that_it_is_there(why: str) -> None:
    cluster = followed(*([] if why == "empty" else [partition("debug")]))
    if why == "stale":
        cluster.stale_since = datetime.now(UTC)
    if why == "no answer":
        cluster.fault = "no answer"
    desired, _ = desired_nodes(cluster, [node("old")], NONE, 20)
    old = by_name(desired)["old"]
    assert not old.delete
    assert old.availability is None


def test_before_red_box_has_answered_nothing_is_desired_of_its_nodes() -> None:
    assert desired_nodes(followed(listed=False, fault="not asked"), [node("debug")], NONE, 20) == ([], 0)


@pytest.mark.parametrize("spec", [{"delivery": "Container"}, {"partitions": {"exclude": ["deb*"]}}])
def test_what_an_administrator_no_longer_wants_goes_without_waiting(spec: dict[str, Any]) -> None:
    desired, _ = desired_nodes(followed(partition("debug"), **spec), [node("debug")], NONE, 20)
    assert [(item.delete, item.after_grace) for item in desired] == [(True, False)]
    assert desired[0].availability is not None
    assert not desired[0].availability.accepts_jobs


def test_beyond_the_number_allowed_those_that_have_a_node_keep_it_then_the_default_comes() -> None:
    names = ("a", "b", "c", "z")
    cluster = followed(*(partition(name, is_default=name == "z") for name in names))
    desired, left_out = desired_nodes(cluster, [node("c")], NONE, 2)
    assert {item.partition for item in desired if not item.delete} == {"c", "z"}
    assert left_out == 2


def test_nodes_of_other_clusters_are_not_its_business() -> None:
    desired, _ = desired_nodes(followed(partition("debug")), [node("old", cluster="hpc2")], NONE, 20)
    assert set(by_name(desired)) == {"debug"}


def test_nodes_of_a_deleted_slurmcluster_go() -> None:
    desired = desired_nodes_of_deleted({"hpc1"}, [node("debug"), node("old", cluster="hpc2")])
    assert [(item.node, item.delete, item.after_grace) for item in desired] == [("hpc2.old", True, False)]


@pytest.mark.parametrize(
    "labels", [{}, {"redbox.dev/virtual": "true", "redbox.dev/cluster": "hpc9"}], ids=["none", "wrong"]
)
def test_a_node_whose_labels_a_hand_changed_is_its_clusters_all_the_same(labels: dict[str, str]) -> None:
    nodes = [node("debug", labels=labels), node("GPU_big", labels=labels, annotations={})]
    assert desired_nodes_of_deleted({"hpc1"}, nodes) == []
    desired, _ = desired_nodes(followed(partition("other")), nodes, NONE, 20)
    assert {item.node for item in desired} == {"hpc1.debug", "hpc1.gpu-big-5f87b3", "hpc1.other"}
    invalid = desired_nodes_of_invalid("hpc1", "why", nodes)
    assert [provider_id(item.cluster, item.partition) for item in invalid] == [
        node_view.provider_id for node_view in nodes
    ]


def test_a_slurmcluster_that_cannot_be_used_keeps_its_nodes_and_says_why() -> None:
    desired = desired_nodes_of_invalid("hpc1", "caBundle holds no certificate", [node("debug")])
    assert [(item.node, item.unreachable, item.delete) for item in desired] == [
        ("hpc1.debug", "caBundle holds no certificate", False)
    ]
