"""One install for both files of this folder, on which sessions and requeues are allowed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from redbox_bed.bed import Bed
from tests.e2e.harness.kubectl_slurm import SERVES, Plugin, plugin_on
from tests.e2e.harness.waiting import eventually


@pytest.fixture(scope="module")
def plugin(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    with plugin_on(bed, tmp_path_factory.mktemp("home")) as plugin:
        yield plugin


@pytest.fixture(scope="module")
def nearby(plugin: Plugin, tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    """From a machine of the bed's network, which reaches red-box itself."""
    config = yaml.safe_load(plugin.bed.places.kubeconfig.read_text())
    for cluster in config["clusters"]:
        cluster["cluster"]["server"] = f"https://{plugin.bed.plan.host('k0').address}:6443"
    file = tmp_path_factory.mktemp("nearby") / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    network = ("nsenter", "--net", f"--target={plugin.bed.host('login').need_pid()}")
    return Plugin(plugin.bed, {**plugin.env, "KUBECONFIG": str(file)}, network)


@pytest.fixture(scope="module")
def running(plugin: Plugin) -> str:
    """A job that serves a port for as long as the tests of this file enter it."""
    name = plugin.submitted("--name", "served", "-t", "20", "-c", "1", "--mem=100", "--wrap", SERVES)
    eventually(lambda: "R" in plugin.well("queue", "--noheader", name).split())
    eventually(lambda: plugin("exec", name, "--", "true").returncode == 0)
    return name
