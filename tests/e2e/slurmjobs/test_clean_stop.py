"""A clean stop (SIGTERM) of the parts that a SlurmJob goes through logs no traceback."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.delivery import NAMESPACE
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs
from tests.e2e.harness.waiting import eventually

WITHIN_S = 100


pytestmark = [pytest.mark.usefixtures("delivery"), pytest.mark.nightly]


@pytest.fixture
def running(jobs: SlurmJobs) -> Applied:
    """Its log and its states flow through all parts."""
    job = jobs.apply("while :; do echo tick; sleep 1; done")
    job.starts()
    job.has_a_log()
    return job


def test_no_part_logs_a_traceback_when_it_is_stopped(bed: Bed, running: Applied, delivery: str) -> None:
    logs = {"operator": controller_log(bed, running, "redbox-operator")}
    with followed(bed, running.namespace, running.pod) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        logs["red-box"] = redbox_log(bed)
        if delivery == "Virtual":
            logs["resourced"] = controller_log(bed, running, "redbox-resourced")
    if delivery == "Container":
        logs["companion"] = log_of_deleted(bed, running, running.namespace, running.pod)
    assert all(logs.values())
    assert {name: text for name, text in logs.items() if "Traceback" in text} == {}


def controller_log(bed: Bed, job: Applied, name: str) -> str:
    pods = job.kubectl.list("pods", NAMESPACE, labels=f"app.kubernetes.io/name={name}")
    (pod,) = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    text = log_of_deleted(bed, job, NAMESPACE, pod)
    job.kubectl("rollout", "status", f"deployment/{name}", f"--namespace={NAMESPACE}", "--timeout=100s")
    return text


def log_of_deleted(bed: Bed, job: Applied, namespace: str, pod: str) -> str:
    """Followed from before its deletion to its end."""
    with followed(bed, namespace, pod) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        job.kubectl("delete", "pod", pod, f"--namespace={namespace}", "--wait=false")
        return first + process.communicate(timeout=WITHIN_S)[0]


@contextmanager
def followed(bed: Bed, namespace: str, pod: str) -> Iterator[subprocess.Popen[str]]:
    """A reader of the pod's log, as long as the block lasts."""
    kubectl = [str(bed.places.state / "bin/kubectl"), "--kubeconfig", str(bed.places.kubeconfig)]
    follow = [*kubectl, "logs", "--follow", pod, f"--namespace={namespace}"]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def redbox_log(bed: Bed) -> str:
    login = bed.host("login")
    file = login.log_path(login_node.SERVICE)
    before = file.stat().st_size
    login.kill(login_node.SERVICE, signal.SIGTERM)
    login_node.start(login)

    def written() -> str:
        return file.read_bytes()[before:].decode()

    text = eventually(written, what="a line of its next start")
    assert "Exception in ASGI" not in text
    return text
