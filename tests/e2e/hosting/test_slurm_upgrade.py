"""Slurm 24.11 becomes 26.05 under a job, daemon after daemon."""

from __future__ import annotations

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role
from redbox_bed.core.progress import Progress
from redbox_bed.images.node_images import import_missing
from redbox_bed.images.slurm_image import slurm_image
from tests.e2e.harness.hosted_slurm import NAMESPACE, SLURMCTLD, HostedSlurm
from tests.e2e.harness.waiting import eventually
from tests.e2e.hosting.test_examples import slurm

__all__ = ["slurm"]
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
UNTIL_RELEASED = "until [ -e /tmp/go-$SLURM_JOB_ID ]; do sleep 0.2; done"
ORDER = ["slurmdbd", "slurmctld", "control", "slurmrestd", "slurmd"]
WITHIN_S = 300


def images(slurm: HostedSlurm) -> dict[str, set[str]]:
    """Of the ready pods, by role."""
    found: dict[str, set[str]] = {}
    for pod in slurm.kubernetes.list("pod", NAMESPACE, labels="slurm.redbox.dev/cluster=slurm"):
        statuses = pod.get("status", {}).get("containerStatuses") or []
        if statuses and all(each["ready"] for each in statuses):
            role = pod["metadata"]["labels"]["slurm.redbox.dev/role"]
            found.setdefault(role, set()).add(pod["spec"]["containers"][0]["image"])
    return found


@pytest.mark.parametrize("slurm", ["24.11"], indirect=True)
def test_slurm_is_upgraded_in_its_order_under_a_job_and_never_goes_back(bed: Bed, slurm: HostedSlurm) -> None:
    eventually(slurm.is_ready, what="Ready")
    slurm.has_idle(2)
    job = slurm.submit(UNTIL_RELEASED)
    worker = slurm.reaches(job, "RUNNING")["NodeList"]
    uid = slurm.workers()[worker]["metadata"]["uid"]
    new = slurm_image(bed.places, Progress.silent(), "26.05")
    for spec in bed.plan.of_role(Role.NODE):
        import_missing(bed.host(spec.name), [new])
    old = images(slurm)["slurmctld"].copy()
    slurm.change("controller", "slurm", {"slurmctld": {"image": new.name}})
    seen: list[str] = []

    def all_run_it() -> bool:
        for role, found in images(slurm).items():
            if new.name in found and role not in seen:
                seen.append(role)
        return set(ORDER) <= set(seen)

    eventually(all_run_it, WITHIN_S, what=f"26.05 in all daemons, seen {seen}")
    firsts = [role for role in seen if role in {"slurmdbd", "slurmctld"}]
    assert firsts == ["slurmdbd", "slurmctld"]
    assert set(seen[: seen.index("slurmctld") + 1]) & {"control", "slurmrestd", "slurmd"} == set()
    assert slurm.job(job)["JobState"] == "RUNNING"
    assert slurm.workers()[worker]["metadata"]["uid"] == uid
    srun = ("srun", "--chdir=/tmp", "--immediate=60", "scontrol", "--version")
    eventually(lambda: "26.05" in slurm.run(*srun), what="a job on a worker of 26.05")
    slurm.run("touch", f"/tmp/go-{job}", pod=worker)
    fields = slurm.reaches(job, "COMPLETED")
    assert (fields["Restarts"], fields["ExitCode"]) == ("0", "0:0")
    eventually(lambda: images(slurm).get("slurmd") == {new.name}, WITHIN_S, what="all workers of 26.05")
    slurm.has_idle(2)
    eventually(slurm.is_ready, what="Ready")
    sacct = ("sacct", "--allusers", "--noheader", "--parsable2", "--format=State", f"--jobs={job}", "-X")
    eventually(lambda: slurm.run(*sacct) == "COMPLETED", what="the job in the accounting")
    slurm.change("controller", "slurm", {"slurmctld": {"image": old.pop()}})
    eventually(
        lambda: "cannot go back to 24.11" in slurm.condition("controller", "slurm", "Degraded")[1],
        what="the refusal",
    )
    assert images(slurm)["slurmctld"] == {new.name}
    assert slurm.restarts(SLURMCTLD) == 0
