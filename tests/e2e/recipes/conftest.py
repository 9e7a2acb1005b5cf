"""`kubectl slurm` of a user whose context is alice's namespace."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from redbox_bed.bed import Bed
from tests.e2e.harness.kubectl_slurm import Plugin, plugin_on


@pytest.fixture(scope="module")
def plugin(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    folder = tmp_path_factory.mktemp("home")
    shutil.copy(bed.places.kubeconfig, folder / "kubeconfig")
    with plugin_on(bed, folder) as installed:
        plugin = replace(installed, env=installed.env | {"KUBECONFIG": str(folder / "kubeconfig")})
        context = ["kubectl", "config", "set-context", "--current", "--namespace=alice"]
        subprocess.run(context, check=True, env=plugin.env, capture_output=True)
        yield plugin
