"""Install, upgrade, rollback and uninstall by real Helm, with jobs that must live through all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import yaml

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import NAMESPACE, RELEASE, Helm, deliver
from redbox_bed.hosts.host import Host
from tests.e2e.harness.accounting import SINCE
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(400)
WITHIN_S = 120
UNTIL_TOLD = "#!/bin/sh\nuntil [ -e ~/{name}.end ]; do sleep 0.5; done\n"


@dataclass(frozen=True)
class Site:
    """Both administrators, and what they have installed."""

    bed: Bed
    kubectl: Kubernetes
    helm: Helm
    login: Host

    def install(self) -> None:
        deliver(self.bed, Progress.silent())

    def get(self, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        return self.kubectl.get(kind, name, namespace)

    def job(self, name: str) -> dict[str, Any]:
        return self.get("slurmjob", name, "alice")

    def phase(self, name: str) -> str:
        return str(self.job(name).get("status", {}).get("phase", ""))

    def end(self, name: str) -> None:
        """Have a job that `submit` made come to its end."""
        self.login.run("sh", "-c", f"touch ~/{name}.end", user="alice")

    def in_slurm(self, name: str) -> list[str]:
        """Every job of that name that Slurm ever had, and its state."""
        said = self.login.run("sacct", SINCE, "-X", "-n", "-P", "-o", "State", f"--name={name}", user="alice")
        return said.stdout.split("\n")[:-1]

    def values(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.helm("get", "values", RELEASE, "--output=json"))
        return values

    def left_of_release(self) -> list[str]:
        kinds = (
            "deployments,pods,jobs,leases,roles,rolebindings,serviceaccounts,configmaps,networkpolicies,"
            "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
        )
        said = self.kubectl("get", kinds, "--all-namespaces", "--output=name", "--show-kind")
        return [line for line in said.splitlines() if "redbox-" in line]


@pytest.fixture(scope="module")
def site(bed: Bed) -> Iterator[Site]:
    deliver(bed, Progress.silent())
    site = Site(bed, Kubernetes(bed), Helm(bed), bed.host("login"))
    yield site
    if not site.login.running(login_node.SERVICE):
        login_node.start(site.login)
    site.install()  # so that the next tests find what they expect, whatever happened here


@pytest.fixture
def submit(site: Site) -> Iterator[Callable[[], str]]:
    """A job of alice's that runs until it is told to end, seen to run."""
    made: list[str] = []

    def apply() -> str:
        name = f"chart-{uuid4().hex[:6]}"
        made.append(name)
        manifest = {
            "apiVersion": "redbox.dev/v1alpha1",
            "kind": "SlurmJob",
            "metadata": {"name": name, "namespace": "alice"},
            "spec": {"cluster": "hpc1", "batch": UNTIL_TOLD.format(name=name)},
        }
        site.kubectl.apply(json.dumps(manifest))
        eventually(lambda: site.phase(name) == "Running")
        return name

    yield apply
    for name in made:
        site.kubectl.delete("slurmjob", name, namespace="alice", wait=False)
        site.login.run("sh", "-c", f"rm -f ~/{name}.end", user="alice")


def test_a_job_lives_through_upgrade_and_rollback(site: Site, submit: Callable[[], str]) -> None:
    name = submit()
    before = site.get("deployment", "redbox-operator", NAMESPACE)["metadata"]["generation"]
    values = site.values() | {"operator": {"podAnnotations": {"upgraded": "yes"}}}
    site.helm.install(values)
    after = site.get("deployment", "redbox-operator", NAMESPACE)
    assert after["metadata"]["generation"] > before
    site.helm("rollback", RELEASE, "--wait")
    back = site.get("deployment", "redbox-operator", NAMESPACE)
    assert "upgraded" not in back["spec"]["template"]["metadata"]["annotations"]
    site.end(name)
    eventually(lambda: site.phase(name) == "Succeeded")
    eventually(lambda: site.in_slurm(name) == ["COMPLETED"])


@pytest.mark.nightly
def test_an_upgrade_brings_the_kinds_up_to_date_and_keeps_a_stored_version(site: Site) -> None:
    crd = "slurmjobs.redbox.dev"
    found = site.get("crd", crd)
    (current,) = found["spec"]["versions"]
    older = {**current, "name": "v1alpha0", "storage": False}
    patch = {"spec": {"versions": [current, older]}}
    site.kubectl("patch", "crd", crd, "--type=merge", f"--patch={json.dumps(patch)}")
    stored = {"status": {"storedVersions": ["v1alpha0", "v1alpha1"]}}
    site.kubectl("patch", "crd", crd, "--type=merge", "--subresource=status", f"--patch={json.dumps(stored)}")
    try:
        site.helm.install(site.values())
        assert {one["name"] for one in site.get("crd", crd)["spec"]["versions"]} == {"v1alpha0", "v1alpha1"}
    finally:
        stored["status"]["storedVersions"] = ["v1alpha1"]
        site.kubectl(
            *("patch", "crd", crd, "--type=merge", "--subresource=status", f"--patch={json.dumps(stored)}")
        )
    site.helm.install(site.values())
    assert [one["name"] for one in site.get("crd", crd)["spec"]["versions"]] == ["v1alpha1"]


@pytest.mark.nightly
def test_uninstall_with_red_box_away_leaves_the_job_and_nothing_that_waits(
    site: Site, submit: Callable[[], str]
) -> None:
    name = submit()
    site.login.kill(login_node.SERVICE)
    said = site.helm("uninstall", RELEASE, "--wait")
    assert said.strip().endswith("uninstalled")
    assert site.left_of_release() == []
    kept = site.job(name)
    assert "finalizers" not in kept["metadata"]
    synced = {one["type"]: one for one in kept["status"]["conditions"]}["Synced"]
    assert (synced["status"], synced["reason"]) == ("False", "Uninstalled")
    of_job = f"redbox.dev/slurmjob-uid={kept['metadata']['uid']}"
    assert site.kubectl.list("pods", "alice", labels=of_job) == []
    eventually(lambda: site.in_slurm(name) == ["RUNNING"])

    login_node.start(site.login)
    site.install()
    site.end(name)
    eventually(lambda: site.phase(name) == "Succeeded")
    again = site.job(name)["status"]
    assert again["jobID"] == kept["status"]["jobID"]
    assert "Uninstalled" not in {one["reason"] for one in again["conditions"]}
    eventually(lambda: site.in_slurm(name) == ["COMPLETED"])


@pytest.mark.nightly
def test_after_an_uninstall_a_namespace_goes_at_once(site: Site) -> None:
    namespace = f"chart-{uuid4().hex[:6]}"
    site.kubectl("create", "namespace", namespace)
    manifest = {
        "apiVersion": "redbox.dev/v1alpha1",
        "kind": "SlurmJob",
        "metadata": {"name": "stuck", "namespace": namespace},
        "spec": {"cluster": "hpc1", "batch": "#!/bin/sh\ntrue\n"},
    }
    site.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(manifest))
    eventually(lambda: "finalizers" in site.get("slurmjob", "stuck", namespace)["metadata"])
    site.helm("uninstall", RELEASE, "--wait")
    site.kubectl("delete", "namespace", namespace, "--timeout=60s")
    assert site.kubectl.list("slurmclusters") == []
    site.install()


@pytest.mark.nightly
def test_an_uninstall_takes_the_virtual_nodes_along(site: Site) -> None:
    def virtual() -> list[str]:
        found = site.kubectl.list("nodes", labels="redbox.dev/virtual")
        return [one["metadata"]["name"] for one in found]

    site.install()
    clusters = {name: spec | {"delivery": "Virtual"} for name, spec in site.values()["slurmClusters"].items()}
    site.helm.install(site.values() | {"resourced": {"enabled": True}, "slurmClusters": clusters})
    eventually(lambda: "hpc1.debug" in virtual())
    site.helm("uninstall", RELEASE, "--wait")
    assert virtual() == []
    assert "hpc1." not in site.kubectl("get", "leases", "--namespace=kube-node-lease", "--output=name")
    assert site.left_of_release() == []
    site.install()


def test_an_uninstall_that_cancels_leaves_no_job(site: Site, submit: Callable[[], str]) -> None:
    name = submit()
    site.helm.install(site.values() | {"uninstall": {"jobs": "Cancel"}})
    site.helm("uninstall", RELEASE, "--wait")
    eventually(lambda: [state[:9] for state in site.in_slurm(name)] == ["CANCELLED"])
    site.install()


def test_an_uninstall_that_cannot_cancel_says_so_and_removes_nothing(
    site: Site, submit: Callable[[], str]
) -> None:
    """The command itself, from the administrator's machine, with less patience than the hook's."""
    name = submit()
    site.login.kill(login_node.SERVICE)
    command = [
        *(sys.executable, "-m", "redbox_operator", "uninstall", f"--namespace={NAMESPACE}"),
        *("--jobs=Cancel", "--cancel-within=3"),
    ]
    environment = os.environ | {"KUBECONFIG": str(site.bed.places.kubeconfig)}
    ended = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert f"alice/{name}: job " in ended.stderr
    deployment = site.get("deployment", "redbox-operator", NAMESPACE)
    assert deployment["spec"]["replicas"] == 1
    assert site.job(name)["metadata"]["finalizers"]
    login_node.start(site.login)


def test_its_namespace_may_enforce_the_restricted_level(site: Site) -> None:
    level = "pod-security.kubernetes.io/enforce"
    site.kubectl("label", "namespace", NAMESPACE, f"{level}=restricted", "--overwrite")
    try:
        site.helm.install(site.values() | {"operator": {"podAnnotations": {"again": uuid4().hex}}})
    finally:
        site.kubectl("label", "namespace", NAMESPACE, f"{level}-")


def test_a_wrong_value_changes_nothing(site: Site) -> None:
    before = site.helm("get", "values", RELEASE)
    with pytest.raises(BedError, match="replica"):
        site.helm.install(site.values() | {"operator": {"replica": 2}})
    assert site.helm("get", "values", RELEASE) == before
