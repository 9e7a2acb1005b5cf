"""The recipes of examples/recipes, as they are, on one Red Box: what each of them says it does, it does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from redbox_bed import docker_hub
from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from redbox_bed.core.plan import Options
from redbox_bed.images.node_images import REGISTRY, import_missing
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs
from tests.e2e.harness.waiting import eventually

RECIPES = CHECKOUT / "examples/recipes"
USER = "alice"
KUBECTL = f"{REGISTRY}/kubectl:1"
WITHIN_S = 120
PRUNE = (
    "--prune", "--selector=study=heat",
    "--prune-allowlist=redbox.dev/v1alpha1/SlurmJob", "--prune-allowlist=core/v1/ConfigMap",
)  # fmt: skip
pytestmark = pytest.mark.timeout(300)


def applied(jobs: SlurmJobs, name: str) -> Applied:
    """A SlurmJob that something else has made; it is deleted at the end of the test."""
    job = Applied(jobs.kubectl, jobs.login, USER, name)
    jobs.made.append(job)
    return job


def recipe(jobs: SlurmJobs, file: str) -> Applied:
    """The SlurmJob of a recipe, applied as it is."""
    text = (RECIPES / file).read_text()
    job = applied(jobs, yaml.safe_load(text)["metadata"]["name"])
    job.delete()  # of a run that failed
    jobs.kubectl("apply", f"--namespace={USER}", "--filename=-", stdin=text)
    return job


@pytest.fixture
def python_packages(bed: Bed) -> None:
    """mpi4py and Dask on the hosts, which only those of the usual release have."""
    if bed.plan.options.release != Options().release:
        pytest.skip(f"the hosts with Slurm {bed.plan.options.release} have no mpi4py and no Dask")


@pytest.fixture
def kubectl_image(bed: Bed) -> str:
    """An image with kubectl, which the bed's nodes cannot pull; they have it by this name."""
    image = docker_hub.kubectl_image(bed.places, KUBECTL)
    for node in ("k1", "k2"):
        import_missing(bed.host(node), [image])
    return KUBECTL


def test_a_cronjob_makes_a_slurmjob_a_night(jobs: SlurmJobs, kubectl_image: str) -> None:
    kubectl, run = jobs.kubectl, f"nightly-{uuid4().hex[:6]}"
    text = (RECIPES / "nightly.yaml").read_text()
    assert "image: alpine/kubectl\n" in text
    text = text.replace("image: alpine/kubectl", f"image: {kubectl_image}")
    kubectl("apply", f"--namespace={USER}", "--filename=-", stdin=text)
    try:
        kubectl("create", "job", run, "--from=cronjob/nightly", f"--namespace={USER}")
        kubectl(
            "wait", f"job/{run}", "--for=condition=Complete", f"--timeout={WITHIN_S}s", f"--namespace={USER}"
        )
        made = kubectl(
            "get", "slurmjobs", "--selector=recipe=nightly", "--output=name", f"--namespace={USER}"
        )
        (name,) = (line.partition("/")[2] for line in made.splitlines())
        job = applied(jobs, name)
        assert job.finishes()["phase"] == "Succeeded"
        assert re.search(r"^the night of .*, as alice$", job.log(), re.MULTILINE)
    finally:
        kubectl("delete", f"job/{run}", f"--namespace={USER}", "--ignore-not-found")
        kubectl("delete", f"--namespace={USER}", "--ignore-not-found", "--filename=-", stdin=text)


def test_what_is_applied_twice_runs_once_and_what_is_pruned_is_cancelled(
    jobs: SlurmJobs, tmp_path: Path
) -> None:
    study = tmp_path / "gitops"
    shutil.copytree(RECIPES / "gitops", study)
    apply = ("apply", "--kustomize", str(study), f"--namespace={USER}", *PRUNE)
    prepare, simulate = applied(jobs, "heat-prepare"), applied(jobs, "heat-simulate")
    for job in (prepare, simulate):
        job.delete()
    assert "heat-simulate created" in jobs.kubectl(*apply)
    simulate.starts()
    ids = [job.status["jobID"] for job in (prepare, simulate)]
    again = jobs.kubectl(*apply)
    assert "slurmjob.redbox.dev/heat-prepare unchanged" in again
    assert "slurmjob.redbox.dev/heat-simulate unchanged" in again
    assert [job.status["jobID"] for job in (prepare, simulate)] == ids

    settings = study / "kustomization.yaml"
    settings.write_text(settings.read_text().replace("  - simulate.yaml\n", ""))
    assert "heat-simulate pruned" in jobs.kubectl(*apply)
    simulate.is_gone()
    eventually(lambda: dict(simulate.in_slurm())[ids[1]] == "CANCELLED")
    assert prepare.status["phase"] == "Succeeded"
    jobs.kubectl("delete", "configmap", "heat-scripts", f"--namespace={USER}")


@pytest.mark.parametrize(("script", "code"), [("echo well", 0), ("exit 7", 7), ("kill -KILL $$", 1)])
def test_ten_lines_of_python_exit_as_the_job(
    bed: Bed, jobs: SlurmJobs, tmp_path: Path, script: str, code: int
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    shutil.copy(bed.places.kubeconfig, kubeconfig)
    jobs.kubectl("config", "set-context", "--current", f"--namespace={USER}", f"--kubeconfig={kubeconfig}")
    batch = tmp_path / "job.sh"
    batch.write_text(f"#!/bin/bash\n{script}\n")
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    command = [sys.executable, str(RECIPES / "submit.py"), str(batch)]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=WITHIN_S, env=environment
    )
    assert ended.returncode == code, ended.stderr
    (name, number) = re.findall(r"^(python-\w+): job (\d+) ended", ended.stdout)[0]
    job = applied(jobs, name)
    eventually(lambda: [row[0] for row in job.in_slurm()] == [number])


@pytest.mark.usefixtures("python_packages")
def test_mpi_plays_ping_pong_in_python_between_three_nodes(jobs: SlurmJobs) -> None:
    job = recipe(jobs, "mpi4py.yaml")
    status = job.finishes()
    log = job.log()
    assert status["phase"] == "Succeeded", log
    assert sorted(re.findall(r"rank (\d) of 3 on (n\d)", log)) == [("0", "n1"), ("1", "n2"), ("2", "n3")]
    assert re.findall(r"0<->(\d) 1 KiB: [\d.]+ us", log) == ["1", "2"]
    folder = f"redbox/{USER}/mpi4py-*"
    written = job.login.run("sh", "-c", f"cat ~/{folder}/pingpong-{status['jobID']}.out", user=USER).stdout
    assert "0<->2 1 KiB" in written


@pytest.mark.usefixtures("python_packages")
def test_dask_computes_on_three_nodes(jobs: SlurmJobs) -> None:
    job = recipe(jobs, "dask.yaml")
    status = job.finishes()
    log = job.log()
    assert status["phase"] == "Succeeded", log
    assert "the sum of squares is 332833500\n" in log
    assert "computed on n1 n2 n3\n" in log


def test_the_slurmjob_of_an_argo_step_runs(jobs: SlurmJobs) -> None:
    workflow: dict[str, Any] = yaml.safe_load((RECIPES / "argo.yaml").read_text())
    (template,) = workflow["spec"]["templates"]
    made = jobs.kubectl(
        *("create", f"--namespace={USER}", "--filename=-", "--output=name"),
        stdin=template["resource"]["manifest"],
    )
    job = applied(jobs, made.strip().partition("/")[2])
    assert job.finishes()["phase"] == "Succeeded"
    assert "a step of a workflow, as alice\n" in job.log()
