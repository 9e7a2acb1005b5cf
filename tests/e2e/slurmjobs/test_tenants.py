"""Tenants with more rights than they need, and namespaces with less: nobody else notices."""

from __future__ import annotations

import pytest

from redbox_bed.core.errors import BedError
from redbox_bed.delivery import NAMESPACE
from redbox_bed.hosts.host import Host
from redbox_operator.companion_pods.users import CompanionUsers
from tests.e2e.harness.slurmjobs import SlurmJobs
from tests.e2e.harness.volumes import CLAIM
from tests.e2e.harness.waiting import eventually

LEVEL = "pod-security.kubernetes.io/enforce"
FINISHED = {
    "type": "Finished",
    "status": "True",
    "reason": "Failed",
    "lastTransitionTime": "2026-11-21T12:00:00Z",
}


def test_a_job_with_results_runs_where_the_restricted_level_is_enforced(
    jobs: SlurmJobs, volume: Host
) -> None:
    jobs.kubectl("label", "namespace", "alice", NAMESPACE, f"{LEVEL}=restricted", "--overwrite")
    try:
        results = {"from": ["moo.out"], "volume": {"persistentVolumeClaim": {"claimName": CLAIM}}}
        job = jobs.apply("echo moo > moo.out", results=results)
        assert job.reaches("Succeeded", "Failed")["phase"] == "Succeeded"
        job.until(lambda status: status.get("results", {}).get("outcome") == "Collected")
        context = job.get("pod", job.pod)["spec"]["securityContext"]
    finally:
        jobs.kubectl("label", "namespace", "alice", NAMESPACE, f"{LEVEL}-")
    user = CompanionUsers().user_of("alice")
    assert {context[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {user}
    assert volume is not None


def test_a_status_that_was_written_by_hand_stalls_nobody_and_is_replaced(jobs: SlurmJobs) -> None:
    """The operator went through each attempt that a status named, before it did anything else."""
    job = jobs.apply("sleep 300")
    job.starts()
    forged = {"attempts": 1_000_000, "phase": "Failed", "conditions": [FINISHED]}
    with pytest.raises(BedError, match="attempts"):
        jobs.kubectl("patch", *patch_of(job.name, '{"status": {"attempts": 2000000000}}'))
    jobs.kubectl.patch("slurmjob", job.name, {"status": forged}, job.namespace, "status")
    other = jobs.apply("true", namespace="bob")
    other.reaches("Succeeded")
    job.delete(wait=False)
    job.is_gone()
    eventually(lambda: {state for _, state in job.in_slurm()} == {"CANCELLED"})


def patch_of(name: str, change: str) -> tuple[str, ...]:
    return "slurmjob", name, "--namespace=alice", "--subresource=status", "--type=merge", f"--patch={change}"
