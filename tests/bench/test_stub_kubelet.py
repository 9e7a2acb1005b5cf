"""The stub kubelet: its own tests in Go, and what it is started with."""

from __future__ import annotations

import os
import subprocess

import pytest

from redbox_bed.core.places import Places
from redbox_bed.core.progress import Progress
from redbox_bed.kube.conf import KUBELET_ADMINISTRATORS
from redbox_bed.programs.golang import find_go, required_version
from redbox_bed.programs.kubernetes import MODULE as KUBE
from tests.bench.stub_kubelet import MODULE, words

WITHIN_S = 600


@pytest.mark.timeout(WITHIN_S)
def test_it_serves_the_log_to_the_api_server_alone_and_ends_with_the_command() -> None:
    go = find_go(Places.of(), Progress.silent())
    ran = subprocess.run(
        [go, "test", "./..."],
        cwd=MODULE,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]


def test_its_streams_are_of_the_release_of_the_beds_kubernetes() -> None:
    ours = required_version(MODULE / "go.mod", "k8s.io/kubelet")
    assert ours == required_version(KUBE / "go.mod", "k8s.io/kubernetes").replace("v1", "v0", 1)


def test_its_relay_is_a_step_of_the_job() -> None:
    options, relay = (line.split() for line in " ".join(words("10.0.0.2", "7", "/log")).split(" -- "))
    assert f"-administrators={KUBELET_ADMINISTRATORS}" in options
    assert relay[0] == "srun"
    assert {"--overlap", "--jobid=7"} <= set(relay)
