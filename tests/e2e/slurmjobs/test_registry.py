"""A SlurmJob whose image wants a password: a Secret of its namespace, and who gets to see it on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.e2e.harness import image_registry
from tests.e2e.harness.image_registry import (
    PASSWORD,
    SECRET,
    Registry,
    apply_with_login,
    busybox_image,
)
from tests.e2e.harness.slurmjobs import SlurmJobs, new_name
from tests.e2e.harness.waiting import eventually

FOLDERS = "/home /var /tmp /run /etc /dev/shm"  # where files of a host are written


@pytest.fixture
def jobs(bed: Bed) -> Iterator[SlurmJobs]:
    jobs = SlurmJobs.on(bed)
    yield jobs
    jobs.clean()
    jobs.kubectl("delete", "secret", "--selector=app=redbox-test", "--namespace=alice")
    bed.host("login").run("rm", "-rf", "/home/alice/.cache/redbox", "/home/alice/.apptainer")


@pytest.fixture(scope="module")
def registry(bed: Bed) -> Iterator[Registry]:
    with image_registry.running(bed) as registry:
        yield registry


@pytest.fixture
def image(registry: Registry, bed: Bed, tmp_path: Path) -> str:
    name = new_name()
    registry.push(f"{name}:1", busybox_image(tmp_path, bed.host("login"), name))
    return f"docker://{registry.address}/{name}:1"


def test_a_registrys_password_is_seen_by_the_pull_alone_and_is_gone_afterwards(
    bed: Bed, jobs: SlurmJobs, registry: Registry, image: str
) -> None:
    hosts = [bed.host(name) for name in bed.plan.clusters[0].hosts]
    login = bed.host("login")
    with registry.stopped():
        job = apply_with_login(jobs, image, PASSWORD)
        eventually(lambda: any(image in line and " pull " in line for line in running(hosts)))
        assert not [line for line in running(hosts) if SECRET in line]
        (credentials,) = holding_secret(hosts)
        assert login.run("stat", "--format=%U %a", credentials).stdout == "alice 600\n"
    assert job.finishes()["phase"] == "Succeeded", job.log()
    assert job.log().endswith(" moo\n")
    assert holding_secret(hosts) == []
    slurm_id = str(job.status["jobID"])
    told = login.run("scontrol", "show", "job", "--detail", slurm_id).stdout
    told += login.run("scontrol", "write", "batch_script", slurm_id, "-", user="alice").stdout
    told += login.run("sacct", "--parsable2", "--format=ALL", f"--jobs={slurm_id}").stdout
    told += job("get", "slurmjob,pod,configmap,event", "--output=json")
    assert SECRET not in told


def test_a_wrong_password_is_said_in_the_status_and_the_registrys_own_words_in_the_log(
    jobs: SlurmJobs, image: str
) -> None:
    job = apply_with_login(jobs, image, "wrong")
    status = job.finishes()
    assert (status["phase"], status["exitCode"]) == ("Failed", 125)
    assert "image could not be pulled" in status["message"]
    assert "authentication required" in job.log()


def running(hosts: list[Host]) -> list[str]:
    """What everybody sees of the processes of these hosts."""
    seen = [host.run("ps", "-e", "-ww", "--format=args=", user="bob").stdout for host in hosts]
    return [line for text in seen for line in text.splitlines()]


def holding_secret(hosts: list[Host]) -> list[str]:
    """The files, of whomever, that hold the password; /home is the same on all hosts."""
    search = f"grep --recursive --files-with-matches --fixed-strings --devices=skip --file=- {FOLDERS}"
    found = {
        file
        for host in hosts
        for file in host.run("sh", "-c", f"{search} 2>/dev/null || :", stdin=f"{SECRET}\n").stdout.split()
    }
    return sorted(found)
