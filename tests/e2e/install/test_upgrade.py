"""An upgrade from the newest release keeps journal, SlurmJobs and running jobs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from redbox_bed.delivery import take_away
from tests.e2e.harness import slurmjobs
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.login_install import without_red_box
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, new_name
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(600)
RELEASES = "v[0-9]*"  # tags; 0.1.0 is the first
INSTALLS_WITHIN_S = 300
UNTIL_END = "echo started; until [ -e ~/{name}.end ]; do sleep 0.5; done; echo ended; exit {code}"


@pytest.fixture(scope="module")
def old_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of that release, with an environment whose programs are that tree's own."""
    git = ["git", "-C", str(CHECKOUT)]
    newest = [*git, "describe", "--tags", "--abbrev=0", f"--match={RELEASES}"]
    tag = subprocess.run(newest, check=False, capture_output=True, text=True).stdout.strip()
    if not tag:
        pytest.skip("this clone has no tag of a release: tag one, or fetch them, to run this test")
    folder = tmp_path_factory.mktemp("before")
    archive = subprocess.run([*git, "archive", tag], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    ours, its = Path(sys.prefix).resolve(), folder / ".venv"
    shutil.copytree(ours, its, symlinks=True)
    for file in (*its.glob("bin/redbox*"), *its.glob("lib/*/site-packages/_red_box.pth")):
        text = file.read_text().replace(str(ours), str(its))
        file.write_text(re.sub(rf"^{re.escape(str(CHECKOUT))}/", f"{folder}/", text, flags=re.MULTILINE))
    return folder


def install_old(bed: Bed, checkout: Path) -> None:
    subprocess.run(
        [checkout / ".venv/bin/python", "-m", "redbox_bed", "redbox"],
        env={**os.environ, "BED_DIR": str(bed.places.state), "PYTHONPATH": str(checkout / "deploy/local")},
        cwd=checkout,
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=INSTALLS_WITHIN_S,
    )


@pytest.fixture
def first_install(bed: Bed, bare: None) -> Iterator[None]:  # noqa: ARG001 (nothing else is installed)
    """A bed on which Red Box was never installed; later tests find it without Red Box."""
    with without_red_box(bed):
        yield
        take_away(bed)
    slurmjobs.delivered.cache_clear()


@pytest.mark.usefixtures("first_install")
@pytest.mark.nightly
def test_jobs_of_the_version_before_run_on_and_end_as_they_should(bed: Bed, old_checkout: Path) -> None:
    install_old(bed, old_checkout)
    jobs = SlurmJobs(Kubernetes(bed), bed.host("login"))

    def begin(code: int = 0, **spec: Any) -> Applied:
        name = new_name()
        return jobs.apply(UNTIL_END.format(name=name, code=code), name=name, **spec)

    well, fails, array, deleted = begin(), begin(7), begin(array="0-2%1"), begin()
    held = begin(hold=True)
    chained = jobs.apply("echo after", dependsOn=[{"name": well.name}])
    before = jobs.apply("echo before")
    assert before.finishes()["phase"] == "Succeeded"
    running = [well, fails, array, deleted]
    ids = {job.name: job.starts()["jobID"] for job in running} | {
        job.name: job.until(lambda status: status.get("jobID"))["jobID"] for job in (held, chained, before)
    }

    slurmjobs.delivered.cache_clear()
    upgraded = SlurmJobs.on(bed)
    assert [job.status["phase"] for job in running] == ["Running"] * 4
    assert held.status["reason"] == "JobHeldUser"
    deleted.delete()
    held.change(hold=False)
    jobs.login.run("sh", "-c", f"cd; touch {' '.join(f'{name}.end' for name in ids)}", user="alice")

    assert well.finishes()["exitCode"] == 0
    assert well.log() == "started\nended\n"
    assert fails.finishes()["exitCode"] == 7
    assert array.finishes()["array"]["succeeded"] == 3
    assert held.finishes()["phase"] == "Succeeded"
    assert chained.finishes()["phase"] == "Succeeded"
    assert before.status["phase"] == "Succeeded"
    kept = [job for job in jobs.made if job is not deleted]
    assert {job.name: job.status["jobID"] for job in kept} == {job.name: ids[job.name] for job in kept}
    once = (well, fails, deleted, held, chained, before)
    eventually(lambda: [len(job.in_slurm()) for job in once] == [1] * 6)
    assert upgraded.apply("echo new").finishes()["phase"] == "Succeeded"
    jobs.clean()
    upgraded.clean()
