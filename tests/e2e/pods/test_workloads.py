"""What makes pods, on Slurm: Jobs with a policy for failures, and steps that hand on files in a claim."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.harness.api_objects import get_object
from tests.e2e.harness.slurm_pods import USER, SlurmPods, container, ended, on_slurm
from tests.e2e.harness.slurmjobs import eventually, new_name

pytestmark = pytest.mark.timeout(300)
Object = dict[str, Any]
POLICY = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
}


def apply_job(pods: SlurmPods, script: str, **spec: Any) -> str:
    """A Job whose pods run this; its name."""
    name = new_name()
    template = {"spec": on_slurm(container(script))}
    pods.apply("Job", name, api="batch/v1", spec={"podFailurePolicy": POLICY, "template": template, **spec})
    return name


def finished(pods: SlurmPods, name: str, kind: str) -> Object:
    """The Job's status once it has this condition."""

    def look() -> Object | None:
        status: Object = get_object(pods.kubectl.kubeconfig, "job", name, USER).get("status", {})
        held = {row["type"] for row in status.get("conditions", []) if row["status"] == "True"}
        return status if kind in held else None

    return eventually(look, what=f"{name} being {kind}")


def pods_of(pods: SlurmPods, job: str) -> list[Object]:
    selector = f"--selector=batch.kubernetes.io/job-name={job}"
    found = json.loads(pods.kubectl("get", "pods", selector, f"--namespace={USER}", "--output=json"))
    return list(found["items"])


def test_a_job_with_three_completions_completes(pods: SlurmPods) -> None:
    script = 'echo "index $JOB_COMPLETION_INDEX"'
    name = apply_job(pods, script, completions=3, parallelism=3, completionMode="Indexed")
    status = finished(pods, name, "Complete")
    assert (status["succeeded"], status.get("failed", 0)) == (3, 0)
    logs = {pods.of(pod["metadata"]["name"]).log() for pod in pods_of(pods, name)}
    assert logs == {f"index {index}\n" for index in range(3)}


def test_an_exit_code_of_the_policy_fails_the_job_at_once(pods: SlurmPods) -> None:
    name = apply_job(pods, "exit 42", completions=3, parallelism=1, backoffLimit=6)
    status = finished(pods, name, "Failed")
    failed = next(row for row in status["conditions"] if row["type"] == "Failed")
    assert failed["reason"] == "PodFailurePolicy"
    assert [ended(pod["status"])["exitCode"] for pod in pods_of(pods, name)] == [42]


def test_a_claim_hands_on_files_from_one_pod_to_the_next(pods: SlurmPods) -> None:
    claim = new_name()
    spec = {
        "storageClassName": "redbox-directory",
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    pods.apply("PersistentVolumeClaim", claim, spec=spec)
    volumes = [{"name": "results", "persistentVolumeClaim": {"claimName": claim}}]
    mounts = [{"name": "results", "mountPath": "/results"}]
    writer = pods.run(container("echo handed on > /results/text", volumeMounts=mounts), volumes=volumes)
    assert writer.ends()["phase"] == "Succeeded"
    reader = pods.run(container("cat /results/text", volumeMounts=mounts), volumes=volumes)
    assert reader.ends()["phase"] == "Succeeded"
    assert reader.log() == "handed on\n"
    volume = get_object(pods.kubectl.kubeconfig, "pvc", claim, USER)["spec"]["volumeName"]
    for pod in (writer, reader):
        pod.delete()
    pods.kubectl("delete", "pvc", claim, f"--namespace={USER}", "--timeout=90s")
    eventually(
        lambda: not get_object(pods.kubectl.kubeconfig, "persistentvolume", volume),
        what="the end of its volume",
    )
    folders = pods.login.run("sh", "-c", f"ls -d /home/{USER}/redbox/volumes/{USER}-{claim}-*", check=False)
    assert folders.stdout == ""
