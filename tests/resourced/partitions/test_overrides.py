"""The administrator's file of limits and features."""

from __future__ import annotations

from pathlib import Path

import pytest

from redbox_clusters.node_labels import Limit
from redbox_resourced.partitions.overrides import (
    InvalidOverrides,
    OverridesFile,
    PartitionOverride,
    read_overrides,
)

SYLABS = """
clusters:
  hpc1:
    debug:
      nodes: 10
      mem_per_node: 2048
      cpu_per_node: 8
      wall_time: 10h
    GPU_big:
      auto_nodes: true
      nodes: 3
      auto_cpu_per_node: true
      auto_mem_per_node: true
      auto_wall_time: true
      additional_features:
        - name: singularity
          version: 3.1
        - name: nvidia-gpu
          version: 2080ti-cuda-7.0
          quantity: 20
"""


def test_partitions_of_the_sylabs_configuration_are_read() -> None:
    overrides = read_overrides(SYLABS, "overrides.yaml")
    assert overrides.of("hpc1", "debug").limits() == {
        Limit.NODES: 10,
        Limit.MEM_MB_PER_NODE: 2048,
        Limit.CPUS_PER_NODE: 8,
        Limit.TIME_S: 36000,
    }
    gpu = overrides.of("hpc1", "GPU_big")
    assert gpu.limits() == {}
    assert [(item.name, item.version, item.quantity) for item in gpu.additional_features] == [
        ("singularity", "3.1", 0),
        ("nvidia-gpu", "2080ti-cuda-7.0", 20),
    ]


def test_what_is_not_in_the_file_is_as_slurm_says() -> None:
    assert read_overrides("", "overrides.yaml").of("hpc1", "debug") == PartitionOverride()


@pytest.mark.parametrize(("written", "seconds"), [("10h", 36000), ("1h30m", 5400), ("90", 90), (90, 90)])
def test_a_wall_time_is_a_duration_or_seconds(written: str | int, seconds: int) -> None:
    assert PartitionOverride.model_validate({"wall_time": written}).wall_time == seconds


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("clusters: {hpc1: {debug: {node: 3}}}", "clusters.hpc1.debug.node"),
        ("clusters: {hpc1: {debug: {nodes: -1}}}", "clusters.hpc1.debug.nodes"),
        ("clusters: {hpc1: {debug: {wall_time: soon}}}", "clusters.hpc1.debug.wall_time"),
        ("clusters: {hpc1: [debug]}", "clusters.hpc1"),
        ("[", "not valid YAML"),
        ("clusters: {hpc1: {debug: {additional_features: [{name: x, version: 2026-31-12}]}}}", "month"),
        ("just words", "overrides.yaml"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(text: str, named: str) -> None:
    with pytest.raises(InvalidOverrides, match=named):
        read_overrides(text, "overrides.yaml")


def test_a_change_is_seen_and_a_bad_one_leaves_what_was_good(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    path.write_text("clusters: {hpc1: {debug: {nodes: 3}}}")
    file = OverridesFile(path)
    file.load()
    assert not file.reload()
    path.write_text("clusters: {hpc1: {debug: {nodes: many}}}")
    assert file.reload()
    assert "clusters.hpc1.debug.nodes" in file.fault
    assert file.current.of("hpc1", "debug").nodes == 3
    assert not file.reload()
    path.write_text("clusters: {hpc1: {debug: {nodes: 3}}}")
    assert file.reload()
    assert file.fault == ""
    path.write_text("clusters: {hpc1: {debug: {nodes: 4}}}")
    assert file.reload()
    assert file.current.of("hpc1", "debug").nodes == 4


def test_a_file_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidOverrides, match="cannot be read"):
        OverridesFile(tmp_path / "none.yaml").load()


def test_no_file_is_no_override() -> None:
    file = OverridesFile(None)
    file.load()
    assert not file.reload()
