"""Snakemake on the login node as alice: its jobs are SlurmJobs that `kubectl slurm` submits."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from redbox_bed.hosts.host import Host
from tests.e2e.harness import python_environment
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.slurmjobs import SlurmJobs
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]  # Snakemake is fetched first, once
LOCK = Path(__file__).with_name("snakemake.lock")
ENVIRONMENT, STUDY, USER = "/home/alice/snakemake", "/home/alice/study", "alice"
PLUGIN = f"#!{ENVIRONMENT}/bin/python3 -I\nfrom kubectl_slurm.__main__ import main\nmain()\n"
WITHIN_S = 400


@pytest.fixture(scope="module")
def study(bed: Bed) -> Iterator[Host]:
    """The login node with Snakemake, kubectl, `kubectl slurm` and the recipe in alice's home."""
    SlurmJobs.on(bed)
    host, kubectl = bed.host("login"), Kubernetes(bed)
    host.run("rm", "-rf", STUDY)
    library = python_environment.install(host, bed.places, LOCK, ENVIRONMENT)
    for package in ("cli/kubectl_slurm", "redbox/redbox_shared"):
        login_node.copy(host, CHECKOUT / package, f"{library}/{Path(package).name}")
    kubectl_program = (bed.places.state / "bin/kubectl").read_bytes()
    for name, content in (("kubectl", kubectl_program), ("kubectl-slurm", PLUGIN)):
        host.write(f"{ENVIRONMENT}/bin/{name}", content, mode=0o755)
    host.write(f"{ENVIRONMENT}/kubeconfig", yaml.safe_dump(_kubeconfig(bed, kubectl)))
    login_node.copy(host, CHECKOUT / "examples/recipes/snakemake", STUDY)
    host.run("chown", "-R", f"{USER}:", STUDY, ENVIRONMENT)
    yield host
    kubectl("delete", "rolebinding", "snakemake", f"--namespace={USER}")
    kubectl("delete", "slurmjobs", "--all", f"--namespace={USER}", "--timeout=90s")
    host.run("rm", "-rf", ENVIRONMENT, STUDY)


def _kubeconfig(bed: Bed, kubectl: Kubernetes) -> dict[str, Any]:
    """That of a user who may edit the namespace, from within the bed's network."""
    account = f"{USER}:default"
    kubectl("delete", "rolebinding", "snakemake", f"--namespace={USER}", "--ignore-not-found")
    binding = ("--clusterrole=edit", f"--serviceaccount={account}", f"--namespace={USER}")
    kubectl("create", "rolebinding", "snakemake", *binding)
    token = kubectl("create", "token", "default", "--duration=2h", f"--namespace={USER}").strip()
    kubeconfig: dict[str, Any] = yaml.safe_load(bed.places.kubeconfig.read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = f"https://{bed.plan.host('k0').address}:6443"
    kubeconfig["users"][0]["user"] = {"token": token}
    kubeconfig["contexts"][0]["context"]["namespace"] = USER
    return kubeconfig


def snakemake(host: Host, *words: str) -> subprocess.CompletedProcess[str]:
    environment = (
        f"PATH={ENVIRONMENT}/bin:/usr/bin:/bin",
        f"KUBECONFIG={ENVIRONMENT}/kubeconfig",
        "HOME=/home/alice",
    )
    begin = ("env", "-C", STUDY, *environment, "snakemake", "--profile", "profile", *words)
    return host.run(*begin, user=USER, check=False, timeout=WITHIN_S)


def test_each_rule_is_a_job_in_slurm_and_their_files_are_the_result(study: Host) -> None:
    ended = snakemake(study)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    total = study.read(f"{STUDY}/total.txt").decode()
    lines = re.findall(r"^(north|south) on n\d, job (\d+)$", total, re.MULTILINE)
    assert [sample for sample, _ in lines] == ["north", "south"], total
    assert len({number for _, number in lines}) == 2
    ask = ("sacct", "-X", "-n", "-P", "-o", "User,State", "-j", ",".join(job for _, job in lines))
    eventually(lambda: study.run(*ask).stdout.splitlines() == ["alice|COMPLETED"] * 2)


def test_a_rule_that_fails_fails_the_workflow(study: Host) -> None:
    ended = snakemake(study, "broken")
    assert ended.returncode == 1
    assert "rule broken" in ended.stderr
