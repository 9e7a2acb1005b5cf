"""`deploy/demo hosted`: a Slurm that runs in Kubernetes, shown by the commands of its administrators."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import RELEASE, Helm, deliver
from redbox_bed.prepare.hosted import STORAGE_CLASS, VOLUMES
from tests.e2e.harness.kubernetes import Kubernetes

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
HOSTED, WITHIN_S = "slurm", 600
KINDS = ("loginsets", "nodesets", "accountings", "controllers")


@pytest.fixture
def _left_as_found(bed: Bed) -> Iterator[None]:
    yield
    kubernetes = Kubernetes(bed)
    kubernetes.delete("slurmjob", "first", namespace="alice")
    for kind in KINDS:
        found = kubernetes.list(f"{kind}.slurm.redbox.dev", HOSTED)
        names = [body["metadata"]["name"] for body in found]
        kubernetes.delete(f"{kind}.slurm.redbox.dev", *names, namespace=HOSTED)
    helm = Helm(bed)
    helm("uninstall", HOSTED, "--no-hooks", "--wait", f"--namespace={HOSTED}")
    helm("upgrade", RELEASE, str(CHECKOUT / "deploy/chart"), "--reuse-values", "--set=hosting.enabled=false")
    kubernetes.delete("namespace", HOSTED)
    kubernetes.delete("persistentvolume", *(f"{STORAGE_CLASS}-{name}" for name in VOLUMES))
    kubernetes.delete("storageclass", STORAGE_CLASS)
    (bed.places.state / "demo").unlink(missing_ok=True)
    deliver(bed, Progress.silent())


@pytest.mark.usefixtures("_left_as_found")
def test_it_shows_a_job_of_alice_on_a_slurm_that_was_not_there_before() -> None:
    command = [str(CHECKOUT / "deploy/demo"), "hosted"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WITHIN_S)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    assert re.search(r"^I am alice, job 1 on cpu-[01]$", ended.stdout, re.MULTILINE)
    assert re.search(r"^slurm +(True)? ", ended.stdout, re.MULTILINE)
    assert "It stays up" in ended.stdout
