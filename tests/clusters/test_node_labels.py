"""Names of partitions on nodes: valid, stable, and never two partitions under one key."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox_clusters.node_labels import (
    DNS_LABEL,
    LABEL_VALUE,
    Limit,
    described_needs,
    dns_label,
    fit_terms,
    partition_label,
    prefix,
    virtual_node,
)

NAMES = st.text(min_size=1, max_size=120)


@pytest.mark.parametrize("name", ["debug", "gpu-2", "a" * 63])
def test_a_name_that_kubernetes_takes_stays_as_it_is(name: str) -> None:
    assert dns_label(name) == name
    assert partition_label(name) == name


def test_a_partition_with_capitals_and_underscores_is_still_readable() -> None:
    assert re.fullmatch(r"gpu-big-[0-9a-f]{6}\.hpc1\.redbox\.dev", prefix("GPU_big", "hpc1"))
    assert partition_label("GPU_big") == "GPU_big"


def test_partitions_that_would_be_written_alike_stay_apart() -> None:
    assert len({virtual_node(name, "hpc1") for name in ("GPU_big", "gpu_big", "gpu-big", "GPU-big")}) == 4


def test_a_hyphen_does_not_make_two_clusters_nodes_one() -> None:
    assert virtual_node("b-c", "a") != virtual_node("c", "a-b")


@given(NAMES)
def test_every_name_becomes_valid(name: str) -> None:
    assert DNS_LABEL.fullmatch(dns_label(name))
    assert LABEL_VALUE.fullmatch(partition_label(name))


def test_a_need_is_met_by_a_higher_limit_or_by_none() -> None:
    assert fit_terms({Limit.NODES: 3}, "debug", "hpc1") == [
        {"matchExpressions": [{"key": "debug.hpc1.redbox.dev/max-nodes", "operator": "Gt", "values": ["2"]}]},
        {"matchExpressions": [{"key": "debug.hpc1.redbox.dev/max-nodes", "operator": "DoesNotExist"}]},
    ]


def test_each_of_several_needs_must_be_met() -> None:
    terms = fit_terms({Limit.NODES: 3, Limit.TIME_S: 60}, "debug", "hpc1")
    assert len(terms) == 4
    assert all(len(term["matchExpressions"]) == 2 for term in terms)


def test_needs_are_told_as_a_person_compares_them_with_labels() -> None:
    assert described_needs(fit_terms({Limit.NODES: 3, Limit.TIME_S: 60}, "debug", "hpc1")) == [
        "debug.hpc1.redbox.dev/max-nodes of 3 or more (or none)",
        "debug.hpc1.redbox.dev/max-time-s of 60 or more (or none)",
    ]
    assert described_needs([]) == []


def test_who_needs_nothing_fits_everywhere() -> None:
    assert fit_terms({}, "debug", "hpc1") == []


@pytest.mark.parametrize(
    "term",
    [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["many"]}]},
        {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["9" * 5000]}]},
    ],
    ids=["fields", "no number", "no number that fits"],
)
def test_needs_of_pods_that_others_made_are_not_told(term: dict[str, list[dict[str, object]]]) -> None:
    assert described_needs([term]) == []
