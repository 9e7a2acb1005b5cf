"""A job that a node could not launch, which Slurm holds: shown with the cure, and released as a retry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from redbox_bed.bed import Bed
from tests.e2e.harness.slurm_nodes import resume_what_slurm_drained
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("delivery"),
    pytest.mark.nightly(delivery="Virtual"),
]
SPOOL = "/var/spool/slurmd"
PARTITION = "GPU_big"  # of n3 alone
HELD = "launch failed requeued held"


@contextmanager
def cannot_launch(bed: Bed) -> Iterator[None]:
    """As long as it lasts n3 has no place for a job's script."""
    node = bed.host("n3")
    node.run("mount", "-t", "tmpfs", "-o", "ro", "tmpfs", SPOOL)
    try:
        yield
    finally:
        node.run("umount", SPOOL)
        resume_what_slurm_drained(bed)


def starts_again(job: Applied) -> None:
    """Slurm would wait two minutes before it starts the job again."""
    job_id = job.comes_to(phase="Submitted", reason="BeginTime")["jobID"]
    job.login.run("scontrol", "update", f"JobId={job_id}", "StartTime=now")


def test_one_that_slurm_holds_says_so_and_its_user_releases_it(jobs: SlurmJobs, bed: Bed) -> None:
    with cannot_launch(bed):
        job = jobs.apply("echo moo", partition=PARTITION)
        status = job.comes_to(phase="Suspended", reason=HELD)
        assert job.conditions["Held"] == ("True", "HeldBySlurm")
        assert f"`kubectl slurm release {job.name}`" in status["message"]
    job("annotate", "slurmjob", job.name, f"redbox.dev/release={status['jobID']}/{status['run']}")
    starts_again(job)
    assert job.finishes()["phase"] == "Succeeded"
    assert job.status["jobID"] == status["jobID"]


def test_a_retry_releases_it_by_itself(jobs: SlurmJobs, bed: Bed) -> None:
    with cannot_launch(bed):
        job = jobs.apply("echo moo", partition=PARTITION, backoffLimit=5)
        job_id = job.until(lambda status: status.get("relaunches"))["jobID"]
    starts_again(job)
    status = job.finishes()
    assert (status["phase"], status["jobID"], status["attempts"]) == ("Succeeded", job_id, 1)
