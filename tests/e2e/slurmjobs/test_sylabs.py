"""Manifests as they were written for Sylabs' operators, applied unchanged, as tools of that time see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role
from redbox_bed.delivery import CHART, RELEASE, Helm
from redbox_bed.hosts.host import Host
from tests.e2e.harness.container_image import BUILD, IMAGE
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.slurmjobs import SlurmJobs, new_name, until_its_log
from tests.e2e.harness.volumes import CLAIM, FOLDER, VOLUME
from tests.e2e.harness.waiting import eventually

EXAMPLES = Path(__file__).parents[3] / "examples" / "sylabs"
OLD = "slurmjobs.wlm.sylabs.io"
OLDEST = "slurmjobs.slurm.sylabs.io"
CONTAINERS = "wlmjobs.wlm.sylabs.io"


@dataclass
class OldJobs:
    """Objects of the old kinds, in alice's namespace."""

    kubectl: Kubernetes
    made: list[tuple[str, str]] = field(default_factory=list)

    def apply(self, manifest: dict[str, Any], resource: str) -> str:
        name = manifest["metadata"]["name"]
        self.kubectl("apply", "--namespace=alice", "--filename=-", stdin=yaml.safe_dump(manifest))
        self.made.append((resource, name))
        return str(name)

    def script(self, *lines: str, group: str = "wlm.sylabs.io", **spec: Any) -> str:
        batch = "\n".join(["#!/bin/sh", *lines, ""])
        manifest = {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "SlurmJob",
            "metadata": {"name": new_name()},
            "spec": {"batch": batch, **spec},
        }
        return self.apply(manifest, f"slurmjobs.{group}")

    def status(self, resource: str, name: str) -> dict[str, Any]:
        return dict(self.kubectl.get(resource, name, "alice").get("status", {}))

    def ends(self, resource: str, name: str) -> dict[str, Any]:
        """As tools of that time wait: for one of two words in `.status.status`."""

        def look() -> dict[str, Any] | None:
            status = self.status(resource, name)
            return status if status.get("status") in {"Succeeded", "Failed"} else None

        return eventually(look)

    def log(self, name: str) -> str:
        pod = f"{name}-job"
        until_its_log(self.kubectl, pod, "alice")
        return self.kubectl("logs", "--namespace=alice", "--follow", pod)

    def clean(self) -> None:
        for resource, name in self.made:
            self.kubectl("delete", resource, name, "--namespace=alice", "--ignore-not-found", "--timeout=60s")


@pytest.fixture
def old_jobs(bed: Bed) -> Iterator[OldJobs]:
    jobs = OldJobs(SlurmJobs.on(bed).kubectl)
    yield jobs
    jobs.clean()


def example(name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return manifest


def test_the_old_batch_example_runs_unchanged(old_jobs: OldJobs) -> None:
    name = old_jobs.apply(example("batch.yaml"), OLD)
    status = old_jobs.ends(OLD, name)
    assert (status["status"], status["user"], status["partition"]) == ("Succeeded", "alice", "debug")
    assert len(status["nodes"]) == 2  # `-N 2 # total number of nodes`
    assert len(old_jobs.log(name).split()) == 2


def test_the_group_before_2019_06_runs_too(old_jobs: OldJobs) -> None:
    """Also with what it said of ssh and the companion: kubectl refuses fields that a kind does not know."""
    said = {"ssh": {"user": "root", "password": "x"}, "resources": {"cpu-per-node": 2}}
    name = old_jobs.script("id -un", group="slurm.sylabs.io", **said)
    assert old_jobs.ends(OLDEST, name)["status"] == "Succeeded"
    assert old_jobs.log(name) == "alice\n"


@pytest.mark.parametrize(
    "line",
    [
        "",  # no directive at all: requeued for ever
        "#SBATCH --exclusive",  # crashed the operator for everybody
        "#SBATCH -N1",
        "#SBATCH --mem=40M",
    ],
    ids=["none", "exclusive", "joined", "memory"],
)
def test_no_directive_harms_the_operator(old_jobs: OldJobs, line: str) -> None:
    name = old_jobs.script(line, "true")
    assert old_jobs.ends(OLD, name)["status"] == "Succeeded"


def test_what_sbatch_refuses_is_told_in_its_words_and_not_tried_again(old_jobs: OldJobs) -> None:
    name = old_jobs.script("#SBATCH --hold=yes", "true")
    status = old_jobs.ends(OLD, name)
    assert (status["status"], status["reason"]) == ("Failed", "Refused")
    assert "'--hold' doesn't allow an argument" in status["message"]


def test_the_old_container_example_runs(old_jobs: OldJobs, bed: Bed) -> None:
    bed.host("login").run("sh", "-c", BUILD, user="alice", timeout=120)
    manifest = example("container.yaml")
    manifest["spec"]["image"] = IMAGE
    name = old_jobs.apply(manifest, CONTAINERS)
    status = old_jobs.ends(CONTAINERS, name)
    assert (status["status"], status["exitCode"]) == ("Succeeded", 0)


def test_the_old_results_example_fills_the_folder_of_its_job(old_jobs: OldJobs, volume: Host) -> None:
    name = old_jobs.apply(example("results.yaml"), OLD)
    eventually(lambda: old_jobs.status(OLD, name).get("results", {}).get("outcome") == "Collected")
    assert volume.read(f"{VOLUME}/{name}-job/moo.out") == b"moo\n"


def test_an_absolute_result_comes_by_its_name_if_the_user_may_read_it(
    old_jobs: OldJobs, volume: Host
) -> None:
    mount = {"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}
    batch = ("mkdir -p ~/elsewhere", "echo moo > ~/elsewhere/moo.out")
    given = {"from": "/home/alice/elsewhere/moo.out", "mount": mount}
    name = old_jobs.script(*batch, results=given)
    secret = old_jobs.script("true", results={"from": "/etc/shadow", "mount": mount})
    eventually(lambda: old_jobs.status(OLD, name).get("results", {}).get("outcome") == "Collected")
    assert volume.read(f"{VOLUME}/{name}-job/moo.out") == b"moo\n"
    results = eventually(lambda: old_jobs.status(OLD, secret).get("results"))
    assert results["outcome"] == "Failed"
    assert "/etc/shadow" in results["message"]


def test_a_failure_says_its_exit_code_and_its_stderr(old_jobs: OldJobs) -> None:
    name = old_jobs.script("echo why >&2", "exit 7")
    status = old_jobs.ends(OLD, name)
    assert (status["status"], status["exitCode"]) == ("Failed", 7)
    assert "why" in old_jobs.log(name)


@pytest.fixture
def host_folder(bed: Bed) -> Iterator[str]:
    """A folder of each node that the chart's values name, and that belongs to companions."""
    SlurmJobs.on(bed)
    for node in bed.plan.of_role(Role.NODE):
        made = ("install", "-d", "-m", "1777", f"{FOLDER}/shared")
        bed.host(node.name).run(*made)
    upgrade = ("upgrade", RELEASE, str(CHART), "--reuse-values", "--take-ownership", "--wait")
    Helm(bed)(*upgrade, "--timeout=110s", f'--set-json=operator.hostPaths=["{FOLDER}/shared"]')
    yield f"{FOLDER}/shared"
    Helm(bed)(*upgrade, "--timeout=110s", "--set-json=operator.hostPaths=[]")


def test_a_host_path_takes_results_below_the_folders_that_are_allowed_and_nowhere_else(
    bed: Bed, old_jobs: OldJobs, host_folder: str
) -> None:
    def into(path: str) -> str:
        mount = {"name": "data", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        return old_jobs.script("echo moo > moo.out", results={"from": "moo.out", "mount": mount})

    name = into(host_folder)
    for path in (f"{host_folder}/../other", f"{host_folder}-beside", "/etc"):
        status = old_jobs.ends(OLD, into(path))
        assert status["reason"] == "VolumeNotAllowed"
        assert f"or a hostPath below {host_folder}" in status["message"]
    eventually(lambda: old_jobs.status(OLD, name).get("results", {}).get("outcome") == "Collected")
    place = ("get", "pod", f"{name}-job", "--namespace=alice", "--output=jsonpath={.spec.nodeName}")
    node = bed.host(old_jobs.kubectl(*place))
    assert node.read(f"{host_folder}/{name}-job/moo.out") == b"moo\n"


def test_a_host_path_is_refused_in_words(old_jobs: OldJobs) -> None:
    mount = {"name": "data", "hostPath": {"path": "/etc", "type": "DirectoryOrCreate"}}
    name = old_jobs.script("true", results={"from": "x", "mount": mount})
    status = old_jobs.ends(OLD, name)
    assert status["reason"] == "VolumeNotAllowed"
    assert "persistentVolumeClaim" in status["message"]


def test_what_cannot_be_read_is_said_and_fails(old_jobs: OldJobs) -> None:
    mount = {"name": "data", "nfs": {"path": "/data"}}
    name = old_jobs.script("true", results={"from": "x", "mount": mount})
    status = old_jobs.ends(OLD, name)
    assert status["reason"] == "Unreadable"
    assert "nfs.server" in status["message"]


def test_an_integer_in_the_node_selector_is_a_label_that_no_node_has(old_jobs: OldJobs) -> None:
    name = old_jobs.script("true", nodeSelector={"wlm.sylabs.io/cuda": 10})
    status = eventually(
        lambda: status if (status := old_jobs.status(OLD, name)).get("reason") == "Unschedulable" else None
    )
    assert status["status"] == "Pending"


def test_deleting_it_cancels_the_job(old_jobs: OldJobs, bed: Bed) -> None:
    name = old_jobs.script("sleep 300")
    status = eventually(
        lambda: status if (status := old_jobs.status(OLD, name)).get("status") == "Running" else None
    )
    old_jobs.kubectl("delete", OLD, name, "--namespace=alice", "--timeout=60s")
    ended = bed.host("login").run("sacct", "-XnPo", "State", "-j", status["jobID"]).stdout
    assert ended.startswith("CANCELLED")


def test_get_slurmjobs_still_means_ours(old_jobs: OldJobs) -> None:
    old_jobs.script("true")
    listed = json.loads(old_jobs.kubectl("get", "slurmjobs", "--namespace=alice", "--output=json"))
    assert all(item["apiVersion"].startswith("redbox.dev/") for item in listed["items"])
    columns = old_jobs.kubectl("get", OLD, "--namespace=alice").splitlines()[0].split()
    assert columns[:3] == ["NAME", "AGE", "STATUS"]
