"""A SlurmJob as the resource of an Argo workflow: its step waits for conditions on fields of the status.

Argo reads such a condition as a label selector, with paths into the object for labels. Here the selectors of
Kubernetes itself judge: a ConfigMap carries fields of the status as its labels.
"""

from __future__ import annotations

import json

import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs

WORKFLOW = yaml.safe_load((CHECKOUT / "examples/recipes/argo.yaml").read_text())
STEP = WORKFLOW["spec"]["templates"][0]["resource"]
SUCCESS, FAILURE = STEP["successCondition"], STEP["failureCondition"]


def holds(job: Applied, condition: str) -> bool:
    """Whether a step that waits for this condition goes on now."""
    status = job.status
    fields = {f"status.{name}": str(status[name]) for name in ("phase", "exitCode") if name in status}
    carrier = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{job.name}-argo", "namespace": job.namespace, "labels": fields},
    }
    job.kubectl.apply(json.dumps(carrier))
    try:
        return bool(job("get", "configmap", f"--selector={condition}", "--output=name").strip())
    finally:
        job("delete", "configmap", f"{job.name}-argo")


def test_the_conditions_of_an_argo_step_come_true_at_the_end_and_not_before(
    bed: Bed, jobs: SlurmJobs
) -> None:
    well, failed, cancelled = jobs.apply("true"), jobs.apply("exit 3"), jobs.apply("sleep 300")
    cancelled.starts()
    assert (holds(cancelled, SUCCESS), holds(cancelled, FAILURE)) == (False, False)
    for job in (well, failed):
        job.finishes()
    assert (holds(well, SUCCESS), holds(well, FAILURE)) == (True, False)
    assert (holds(failed, SUCCESS), holds(failed, FAILURE)) == (False, True)
    assert holds(failed, "status.exitCode == 3")
    bed.host("login").run("scancel", cancelled.status["jobID"], user="alice")
    cancelled.finishes()
    assert (holds(cancelled, SUCCESS), holds(cancelled, FAILURE)) == (False, True)
