"""What a partition offers, and under which keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox_api.models import Amounts, Partition, PartitionLimits
from redbox_clusters.node_labels import LABEL_VALUE, Limit
from redbox_resourced.partitions.advertised import (
    AdvertisedPartition,
    advertised_partition,
    annotations_of,
    labels_of,
    legacy_labels_of,
    resources_of,
)
from redbox_resourced.partitions.overrides import NO_OVERRIDE, AdditionalFeature, PartitionOverride

NOTHING = Amounts(nodes=0, cpus=0, mem_mb=0)
GPUS = Amounts(nodes=2, cpus=64, mem_mb=512000, gpus=8, gres={"gpu:tesla": 8})


def partition(name: str = "debug", **fields: Any) -> Partition:
    given = {"state": "UP", "total": NOTHING, "free": NOTHING, **fields}
    return Partition(name=name, **given)


def offered(override: PartitionOverride = NO_OVERRIDE, **fields: Any) -> AdvertisedPartition:
    return advertised_partition("hpc1", partition(**fields), override)


def test_amounts_are_what_the_partition_has_and_not_what_is_free() -> None:
    resources = resources_of(offered(name="GPU_big", total=GPUS))
    head = "gpu-big-5f87b3.hpc1.redbox.dev/"
    assert resources == {
        f"{head}nodes": "2",
        f"{head}cpus": "64",
        f"{head}mem": "512000",
        f"{head}gpus": "8",
        f"{head}gpu.tesla": "8",
    }


def test_a_partition_without_nodes_has_nothing_and_says_so() -> None:
    assert set(resources_of(offered()).values()) == {"0"}


def test_the_true_name_is_in_an_annotation() -> None:
    name = "Großrechner, 2. Stock"
    offer = offered(name=name)
    assert list(annotations_of(offer).values()) == [name]
    assert all(LABEL_VALUE.fullmatch(value) for value in labels_of(offer).values())


def test_a_limit_that_slurm_does_not_set_has_no_label() -> None:
    labels = labels_of(offered(limits=PartitionLimits(max_nodes=3)))
    assert labels == {"debug.hpc1.redbox.dev/partition": "debug", "debug.hpc1.redbox.dev/max-nodes": "3"}


def test_limits_are_numbers() -> None:
    limits = PartitionLimits(
        max_time_s=1800, max_nodes=2, max_cpus_per_node=4, max_mem_mb_per_node=4000, max_gpus_per_node=0
    )
    labels = labels_of(offered(limits=limits))
    assert {key.partition("/")[2]: value for key, value in labels.items() if "max-" in key} == {
        "max-time-s": "1800",
        "max-nodes": "2",
        "max-cpus-per-node": "4",
        "max-mem-mb-per-node": "4000",
        "max-gpus-per-node": "0",
    }


@pytest.mark.parametrize("feature", ["a100", "Intel_X", "a|b&c", "f" * 90, "ä", ".x."])
def test_any_feature_makes_a_valid_label(feature: str) -> None:
    keys = [key for key in labels_of(offered(features=[feature])) if "/feature." in key]
    assert len(keys) == 1
    assert LABEL_VALUE.fullmatch(keys[0].partition("/")[2])


@given(st.text(min_size=1, max_size=80))
def test_any_gres_makes_a_valid_resource_that_hides_no_other(gres: str) -> None:
    total = Amounts(nodes=1, cpus=2, mem_mb=3, gpus=4, gres={gres: 5})
    resources = resources_of(offered(total=total))
    assert sorted(resources.values()) == ["1", "2", "3", "4", "5"]
    assert all(LABEL_VALUE.fullmatch(key.partition("/")[2]) for key in resources)


def test_a_fixed_limit_stands_in_place_of_slurms() -> None:
    override = PartitionOverride(nodes=10, wall_time=36000)
    offer = offered(override, limits=PartitionLimits(max_nodes=3, max_mem_mb_per_node=4000))
    assert offer.limits == {Limit.NODES: 10, Limit.TIME_S: 36000, Limit.MEM_MB_PER_NODE: 4000}


def test_additional_features_have_versions_and_quantities() -> None:
    features = [
        AdditionalFeature(name="singularity", version="3.1.0"),
        AdditionalFeature(name="seats", quantity=20),
    ]
    offer = offered(PartitionOverride(additional_features=features), features=["intel"])
    labels, resources = labels_of(offer), resources_of(offer)
    head = "debug.hpc1.redbox.dev/feature."
    assert {key: value for key, value in labels.items() if key.startswith(head)} == {
        f"{head}intel": "true",
        f"{head}singularity": "3.1.0",
        f"{head}seats": "true",
    }
    assert resources[f"{head}seats"] == "20"
    assert f"{head}singularity" not in resources


def test_old_keys_are_those_of_the_sylabs_operator() -> None:
    override = PartitionOverride(
        nodes=10,
        wall_time=36000,
        cpu_per_node=8,
        mem_per_node=2048,
        additional_features=[AdditionalFeature(name="cuda", version="10")],
    )
    assert legacy_labels_of(offered(override)) == {
        "wlm.sylabs.io/partition": "debug",
        "wlm.sylabs.io/nodes": "10",
        "wlm.sylabs.io/wall-time": "36000",
        "wlm.sylabs.io/cpu-per-node": "8",
        "wlm.sylabs.io/mem-per-node": "2048",
        "wlm.sylabs.io/cuda": "10",
        "wlm.sylabs.io/cuda_10": "true",
    }


def test_a_feature_cannot_pass_for_an_old_limit() -> None:
    labels = legacy_labels_of(offered(PartitionOverride(nodes=10), features=["nodes", "partition"]))
    assert labels == {"wlm.sylabs.io/nodes": "10", "wlm.sylabs.io/partition": "debug"}
