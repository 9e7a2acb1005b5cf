"""A report that all containers have ended is the pod's end once its job has ended in Slurm."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_api.models import Phase
from redbox_api.pod_report import PodReport
from redbox_resourced.pods.reported import run_status
from tests.resourced.pods.factories import died, pod_job, report, running_pod

NEVER: dict[str, Any] = {"restartPolicy": "Never"}
INIT: dict[str, Any] = {"initContainers": [{"name": "setup", "image": "busybox"}]}
SIDECAR: dict[str, Any] = {"initContainers": [{"name": "proxy", "image": "envoy", "restartPolicy": "Always"}]}


@pytest.mark.parametrize(
    ("spec", "reported", "end", "phase"),
    [
        (NEVER, report(main=died(0), done=True), Phase.SUCCEEDED, "Succeeded"),
        (NEVER, report(main=died(3), done=True), Phase.FAILED, "Failed"),
        (INIT | NEVER, report(setup=died(1), done=True), Phase.FAILED, "Failed"),
        (SIDECAR | NEVER, report(proxy=died(143), main=died(0), done=True), Phase.SUCCEEDED, "Succeeded"),
        ({}, report(main=died(0), done=True), Phase.SUCCEEDED, "Succeeded"),
    ],
)
def test_the_end_is_that_of_the_report_once_the_job_has_ended_in_slurm(
    spec: dict[str, Any], reported: PodReport, end: Phase, phase: str
) -> None:
    alive = run_status.of_job(running_pod(**spec), pod_job(pod=reported))
    ended = run_status.of_job(running_pod("Running", **spec), pod_job(end, reported, state="COMPLETED"))
    assert alive is not None
    assert ended is not None
    assert (alive["phase"], ended["phase"]) == ("Running", phase)
