"""red-box as a pod, and a login node with only sshd and a Python: deliveries, faults, upgrade, node drain."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial

import pytest

from redbox_bed.bed import Bed
from redbox_bed.delivery import TENANTS
from tests.e2e.harness.cluster_storm import read_in_the_end
from tests.e2e.harness.redbox_in_pod import (
    GROUP,
    NAME,
    OBSERVER,
    RedboxInPod,
    redbox_in_pod,
)
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, is_whole
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(600)
JOBS = 24
SEED = 20261124
SCRIPT = "for i in $(seq 1 20); do seq $i 200; sleep 0.1; done"
OUTPUT = "".join(f"{number}\n" for part in range(1, 21) for number in range(part, 201))
UNTIL_TOLD = "until [ -e ~/{name}.end ]; do sleep 0.2; done; echo told"


@pytest.fixture(scope="module")
def site(bed: Bed) -> Iterator[RedboxInPod]:
    SlurmJobs.on(bed)
    with redbox_in_pod(bed) as site:
        yield site


@pytest.fixture(scope="module", params=["Container", "Virtual"])
def delivered(request: pytest.FixtureRequest, site: RedboxInPod) -> RedboxInPod:
    site.deliver(request.param)
    return site


@pytest.mark.nightly(delivered="Virtual")
def test_a_job_runs_as_its_user_and_only_sshd_has_started_anything(
    delivered: RedboxInPod, jobs: SlurmJobs
) -> None:
    job = jobs.apply("id -un; seq 1 2000", cluster=NAME)
    assert job.finishes()["phase"] == "Succeeded"
    assert job.log().endswith("alice\n" + "".join(f"{number}\n" for number in range(1, 2001)))
    shown = delivered.login.run("ps", "-e", "-o", "user:32=,ppid=,args=").stdout.splitlines()
    agents = [line.split() for line in shown if "redbox-agent" in line]
    assert {OBSERVER, "alice"} <= {agent[0] for agent in agents}
    for _, parent, *_ in agents:
        assert "sshd" in delivered.login.run("ps", "-o", "args=", "-p", parent).stdout


@pytest.mark.nightly
def test_after_kills_and_lost_pods_each_job_has_run_once(delivered: RedboxInPod, jobs: SlurmJobs) -> None:
    chance = random.Random(SEED)
    blows = [
        delivered.kill,
        delivered.delete_pod,
        lambda: delivered.delete_pod(force=True),
        delivered.kill_agents,
    ]
    applied: list[Applied] = []
    for number in range(JOBS):
        namespace = chance.choice(TENANTS)
        applied.append(jobs.apply(SCRIPT, cluster=NAME, namespace=namespace, resources={"time": "5"}))
        if number % (JOBS // len(blows)) == JOBS // len(blows) // 2:
            blows[number // (JOBS // len(blows))]()
    for job in applied:
        assert job.reaches("Succeeded", "Failed", "Cancelled", within_s=300)["phase"] == "Succeeded"
        job.has_in_slurm("COMPLETED")
        assert eventually(partial(_has_whole_log, job), what=f"the whole log of {job.name}")


def _has_whole_log(job: Applied) -> bool:
    """A companion may still be on its way to a red-box that was killed while the job ended."""
    return is_whole(read_in_the_end(job.whole_output), OUTPUT)


@pytest.mark.nightly
def test_an_upgrade_and_the_drain_of_its_node_lose_nothing(site: RedboxInPod, jobs: SlurmJobs) -> None:
    name = "upgraded"
    before = json.loads(site.kubectl("get", "slurmcluster", NAME, "--output=json"))["spec"]
    job = jobs.apply(UNTIL_TOLD.format(name=name), cluster=NAME)
    job.starts()
    pod = site.uid
    site.install(settings={"logs": {}, "limits": {"streams": 19_999}})
    assert site.uid != pod, "other settings need a start"
    site.drain()
    waiting = jobs.apply("echo second", cluster=NAME)
    assert waiting.finishes()["phase"] == "Succeeded"
    assert job.status["phase"] == "Running"
    site.login.run("touch", f"/home/alice/{name}.end", user="alice")
    assert job.finishes()["phase"] == "Succeeded"
    site.login.run("rm", f"/home/alice/{name}.end", user="alice")
    assert job.log().endswith("told\n")
    for each in (job, waiting):
        each.has_in_slurm("COMPLETED")
    after = json.loads(site.kubectl("get", "slurmcluster", NAME, "--output=json"))["spec"]
    assert (after["audience"], after["caBundle"]) == (before["audience"], before["caBundle"])


def test_check_says_from_the_pod_what_the_login_node_lacks(site: RedboxInPod) -> None:
    assert [one for one in site.findings() if one["level"] == "fault"] == []
    site.login.run("gpasswd", "--delete", "bob", GROUP)
    site.login.run("usermod", "--password", "!", OBSERVER)
    try:
        (fault,) = [one for one in site.findings() if one["level"] == "fault"]
        assert f"no agent starts on {site.login.spec.address} as {OBSERVER}" in fault["what"]
        site.login.run("usermod", "--password", "*", OBSERVER)
        faults = [one["what"] for one in site.findings() if one["level"] == "fault"]
        assert any(f"names user bob, who is not in the group {GROUP}" in what for what in faults)
        assert any("no agent starts on the login node as bob" in what for what in faults)
    finally:
        site.login.run("usermod", "--password", "*", OBSERVER)
        site.login.run("usermod", "--append", "--groups", GROUP, "bob")


@pytest.mark.nightly
def test_a_lost_volume_is_recovered_in_the_pod(site: RedboxInPod, jobs: SlurmJobs) -> None:
    name = "recovered"
    job = jobs.apply(UNTIL_TOLD.format(name=name), cluster=NAME)
    job.starts()
    site.lose_journal()
    eventually(lambda: "redbox recover" in site.log(), what="a red-box that refuses an empty journal")
    site.install(maintenance=True)
    assert "Wrote " in site.run("recover")
    site.install(maintenance=False)
    site.login.run("touch", f"/home/alice/{name}.end", user="alice")
    assert job.finishes()["phase"] == "Succeeded"
    site.login.run("rm", f"/home/alice/{name}.end", user="alice")
    job.has_in_slurm("COMPLETED")
