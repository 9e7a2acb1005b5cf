"""What administrators change under pods on Slurm: a rule is missing, a SlurmCluster or all of it goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from redbox_bed.bed import Bed
from redbox_bed.delivery import KUBERNETES_NAME, RELEASE, SLURM_CLUSTER, Helm, take_away
from redbox_bed.hosts.host import Host
from tests.e2e.harness import slurmjobs
from tests.e2e.harness.redbox_settings import put_rule_first, settings_changed
from tests.e2e.harness.slurm_pods import (
    FOREVER,
    NEVER_ENDED,
    USER,
    SlurmPod,
    SlurmPods,
    condition,
    container,
    on_slurm,
    pods_ready,
    upgrade,
    wait_until_served,
)
from tests.e2e.harness.slurmjobs import SlurmJobs, new_name
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(400)
ACCOUNT = "trainer"


def test_a_deployment_whose_account_has_no_rule_waits_and_then_runs(pods: SlurmPods) -> None:
    pods.apply("ServiceAccount", ACCOUNT)
    (pod,) = deployed(pods, serviceAccountName=ACCOUNT)
    assert ACCOUNT in pod.waits("Refused")
    assert pod.status["phase"] == "Pending"
    with rule_for(pods.login, ACCOUNT):
        pod.is_ready()
        pod.has_in_slurm("RUNNING")


def deployed(pods: SlurmPods, **spec: Any) -> list[SlurmPod]:
    """The pods of a Deployment of one replica, once there are any."""
    name = new_name()
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {**on_slurm(container(FOREVER)), "restartPolicy": "Always", **spec},
    }
    selector = {"matchLabels": {"app": name}}
    pods.apply(
        "Deployment", name, api="apps/v1", spec={"replicas": 1, "selector": selector, "template": template}
    )
    found = eventually(lambda: pods.kubectl.list("pods", USER, labels=f"app={name}"))
    return [pods.of(pod["metadata"]["name"]) for pod in found]


@contextmanager
def rule_for(login: Host, account: str) -> Iterator[None]:
    where = {"cluster": KUBERNETES_NAME, "namespaces": [USER], "service_accounts": [account]}
    rule = {**where, "user": USER, "roles": ["submit"]}
    with settings_changed(login, lambda settings: put_rule_first(settings, rule)):
        yield


def test_a_deleted_slurmcluster_waits_for_its_pods_and_names_them(bed: Bed, pods: SlurmPods) -> None:
    pod = pods.run(container(FOREVER))
    pod.is_ready()
    job_id = pod.job_id
    pods.kubectl("delete", "slurmcluster", SLURM_CLUSTER, "--wait=false")
    try:
        message = eventually(lambda: in_use(pods), what="the condition InUse")
        assert f"{USER}/{pod.name}: Slurm job {job_id}" in message
        assert pod.status["phase"] == "Running"
        pod.delete()
        eventually(lambda: not cluster(pods), what="the end of the SlurmCluster")
    finally:
        pod.delete()
        eventually(lambda: not cluster(pods), what="the end of the SlurmCluster")
        upgrade(bed)
        wait_until_served(pods.kubectl)


def cluster(pods: SlurmPods) -> dict[str, Any]:
    return pods.kubectl.get("slurmcluster", SLURM_CLUSTER)


def in_use(pods: SlurmPods) -> str:
    """What the condition says of pods; nothing before."""
    shown = condition(cluster(pods).get("status", {}), "InUse")
    return str(shown["message"]) if shown.get("reason") == "PodsUnfinished" else ""


@pytest.mark.nightly
def test_an_uninstall_that_cancels_leaves_no_job_of_a_pod(bed: Bed, pods: SlurmPods) -> None:
    pod = pods.run(container(FOREVER))
    pod.is_ready()
    assert pods_ready(pods.kubectl)["status"] == "True"
    upgrade(bed, "uninstall.jobs=Cancel")
    try:
        Helm(bed)("uninstall", RELEASE, "--wait", "--timeout=2m")
        assert not pod.manifest
        states = eventually(lambda: {state for _, state in pod.in_slurm()} - NEVER_ENDED, what="its end")
        assert len(states) == 1, states
    finally:
        take_away(bed)
        slurmjobs.delivered.cache_clear()
        SlurmJobs.on(bed)
