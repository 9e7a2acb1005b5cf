"""A proxy before slurmrestd that lies to the operator: no worker with a job goes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from tests.e2e.harness.hosted_slurm import NAMESPACE, HostedSlurm, hosted_slurm, hosting
from tests.e2e.harness.lying_slurmrestd import lying
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
UNTIL_RELEASED = "until [ -e /tmp/go-$SLURM_JOB_ID ]; do sleep 0.2; done"


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def slurm(bed: Bed, request: pytest.FixtureRequest) -> Iterator[HostedSlurm]:
    with hosting(bed, request.param) as kubernetes, hosted_slurm(bed, kubernetes, 1) as slurm:
        yield slurm


def uid_of(slurm: HostedSlurm, worker: str) -> str:
    """Empty for a worker that ends."""
    pod = slurm.workers().get(worker, {"metadata": {"uid": ""}})
    return str(pod["metadata"]["uid"])


def has_ended(slurm: HostedSlurm, job: str, worker: str) -> None:
    """Once, and well; then its worker may go, and the next one may have another name."""
    slurm.run("touch", f"/tmp/go-{job}", pod=worker)
    assert slurm.reaches(job, "COMPLETED")["Restarts"] == "0"
    eventually(lambda: not slurm.workers(), what="the end of the worker")
    slurm.scale(1)
    slurm.has_idle(1)


@pytest.mark.parametrize(
    "how", ["hangs", "502 after 20 s", "errors", "half", "another node", "idle and drained", "no jobs"]
)
def test_no_worker_with_a_job_goes(slurm: HostedSlurm, how: str) -> None:
    job = slurm.submit(UNTIL_RELEASED)
    busy = slurm.reaches(job, "RUNNING")["NodeList"]
    uid = uid_of(slurm, busy)
    with lying(slurm, how, busy) as liar:
        slurm.scale(0)
        liar.is_asked()
        assert uid_of(slurm, busy) == uid
    has_ended(slurm, job, busy)


def test_an_answer_that_comes_again_and_again_deletes_no_worker(slurm: HostedSlurm) -> None:
    """Of a time when the operator had drained the node; since then somebody resumed it."""
    (busy,), cordon = slurm.workers(), "slurm.redbox.dev/pod-cordon"
    uid = uid_of(slurm, busy)
    slurm.kubernetes.patch("pod", busy, {"metadata": {"annotations": {cordon: "disk"}}}, NAMESPACE)
    eventually(lambda: "DRAIN" in slurm.run("sinfo", "-h", "-o%T").upper(), what="the drain")
    with lying(slurm, "the first answer again", busy) as liar:
        liar.is_asked()
        slurm.run("scontrol", "update", f"nodename={busy}", "state=resume")
        job = slurm.submit(UNTIL_RELEASED)
        slurm.reaches(job, "RUNNING")
        slurm.scale(0)
        liar.is_asked()
        assert uid_of(slurm, busy) == uid
    has_ended(slurm, job, busy)
