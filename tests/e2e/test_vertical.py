"""The thinnest true path through all parts: kubectl apply -> sbatch as alice -> kubectl logs, and back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import yaml

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.delivery import Kubernetes, deliver
from redbox_bed.host import Host
from redbox_bed.progress import Progress

ENDS_WITHIN = 90

SCRIPT = """\
#!/bin/bash
echo "user $(id -un) on $(hostname)"
echo "apart" >&2
for line in 1 2 3; do echo "line $line"; sleep 0.3; done
exit 3
"""


@dataclass(frozen=True)
class Cluster:
    """kubectl as the cluster's administrator."""

    kubectl: Kubernetes

    def get(self, *arguments: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output", "json"))
        return answer


@pytest.fixture(scope="module")
def login(bed: Bed) -> Host:
    return bed.host("login")


@pytest.fixture(scope="module")
def cluster(bed: Bed, login: Host) -> Iterator[Cluster]:
    """red-box on the login node, the operator in the cluster, alice and bob with a namespace each."""
    deliver(bed, Progress.silent())
    yield Cluster(Kubernetes(bed))
    login.kill(login_node.SERVICE)


@dataclass(frozen=True)
class Submitted:
    """A SlurmJob of a test."""

    cluster: Cluster
    namespace: str
    name: str

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.cluster.get("slurmjob", self.name, f"--namespace={self.namespace}").get(
            "status", {}
        )
        return status

    def reaches(self, *phases: str) -> dict[str, Any]:
        return eventually(lambda: status if (status := self.status).get("phase") in phases else None)

    def logs(self, *options: str) -> str:
        return self.cluster.kubectl("logs", f"--namespace={self.namespace}", f"{self.name}-job", *options)

    def delete(self) -> None:
        self.cluster.kubectl(
            "delete", "slurmjob", self.name, f"--namespace={self.namespace}", "--timeout=60s"
        )


def eventually(look: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    deadline = time.monotonic() + ENDS_WITHIN
    while (found := look()) is None:
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.2)
    return found


@pytest.fixture
def submit(cluster: Cluster) -> Iterator[Callable[[str, str], Submitted]]:
    """Apply a SlurmJob; whatever is left of it at the end is deleted."""
    made: list[Submitted] = []

    def apply(namespace: str, script: str) -> Submitted:
        job = Submitted(cluster, namespace, f"t-{uuid4().hex[:8]}")
        manifest = {
            "apiVersion": "redbox.dev/v1alpha1",
            "kind": "SlurmJob",
            "metadata": {"name": job.name, "namespace": namespace},
            "spec": {"cluster": "hpc1", "batch": script},
        }
        cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(manifest))
        made.append(job)
        return job

    yield apply
    for job in made:
        cluster.kubectl(
            "delete",
            "slurmjob",
            job.name,
            f"--namespace={job.namespace}",
            "--ignore-not-found",
            "--timeout=60s",
        )


def test_a_job_runs_as_its_owner_and_its_output_is_in_kubectl_logs(
    submit: Callable[[str, str], Submitted], login: Host
) -> None:
    job = submit("alice", SCRIPT)
    status = job.reaches("Failed", "Succeeded")
    assert (status["phase"], status["exitCode"], status["user"]) == ("Failed", 3, "alice")
    pod = eventually(
        lambda: (
            pod
            if (pod := job.cluster.get("pod", f"{job.name}-job", "--namespace=alice"))["status"]["phase"]
            == "Failed"
            else None
        )
    )
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    lines = job.logs().splitlines()
    assert [line for line in lines if line.startswith("line")] == ["line 1", "line 2", "line 3"]
    assert any(line.startswith("user alice on n") for line in lines)
    assert "apart" in lines
    row = login.run(
        "sacct", "-X", "-n", "-P", "-o", "User,State,ExitCode", "-j", status["jobID"]
    ).stdout.strip()
    assert row == "alice|FAILED|3:0"


def test_bobs_namespace_is_bobs_account(submit: Callable[[str, str], Submitted]) -> None:
    job = submit("bob", "#!/bin/sh\nid -un\n")
    assert job.reaches("Succeeded", "Failed")["user"] == "bob"


def test_deleting_the_slurmjob_cancels_the_job_and_waits_for_its_end(
    submit: Callable[[str, str], Submitted], login: Host
) -> None:
    job = submit("alice", "#!/bin/sh\nsleep 600\n")
    job_id = job.reaches("Running")["jobID"]
    job.delete()
    state = login.run("sacct", "-X", "-n", "-P", "-o", "State", "-j", job_id).stdout.strip()
    assert state.startswith("CANCELLED")


def test_a_killed_red_box_comes_back_to_the_same_job(
    submit: Callable[[str, str], Submitted], login: Host
) -> None:
    job = submit("alice", "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8; do echo tick $i; sleep 0.5; done\n")
    job.reaches("Running")
    login.kill(login_node.SERVICE)
    login_node.start(login)
    status = job.reaches("Succeeded", "Failed")
    assert status["phase"] == "Succeeded"
    name = f"--name={job.name}"
    jobs = login.run("sacct", "-X", "-n", "-P", "-o", "JobID", name, user="alice").stdout.split()
    assert jobs == [status["jobID"]]
    eventually(lambda: {"logs": True} if job.logs().count("tick") == 8 else None)
    written = [line for line in job.logs().splitlines() if not line.startswith("redbox: ")]
    assert written == [f"tick {i}" for i in range(1, 9)]


def test_a_script_that_slurm_refuses_says_so_and_is_not_retried(
    submit: Callable[[str, str], Submitted],
) -> None:
    job = submit("alice", "#!/bin/sh\n#SBATCH --partition=nowhere\ntrue\n")
    status = job.reaches("Failed")
    assert "partition" in status["message"].lower()
    assert "jobID" not in status
