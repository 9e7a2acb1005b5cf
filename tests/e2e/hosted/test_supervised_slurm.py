"""slurmctld and slurmd under the supervisor, in pods that Pod Security's baseline admits."""

from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from tests.e2e.harness.supervised_slurm import (
    CONF,
    CONTROLLER,
    KILL_SLURMD,
    NAMESPACE,
    WORKER,
    SupervisedSlurm,
    supervised_slurm,
)
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
UNTIL_RELEASED = "until [ -e /tmp/go ]; do sleep 0.2; done; echo done"


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def slurm(bed: Bed, request: pytest.FixtureRequest) -> Iterator[SupervisedSlurm]:
    with supervised_slurm(bed, request.param) as slurm:
        yield slurm


@pytest.fixture
def job(slurm: SupervisedSlurm) -> str:
    """A job that runs until it may end."""
    slurm.run("rm", "-f", "/tmp/go")
    job = slurm.submit(UNTIL_RELEASED)
    slurm.reaches(job, "RUNNING")
    return job


def ends_well(slurm: SupervisedSlurm, job: str) -> None:
    slurm.run("touch", "/tmp/go")
    fields = slurm.reaches(job, "COMPLETED")
    assert (fields["Restarts"], fields["ExitCode"]) == ("0", "0:0")


def test_a_job_runs_and_the_node_has_the_pods_uid(slurm: SupervisedSlurm) -> None:
    assert slurm.run("srun", "hostname") == WORKER
    uid = slurm.kubernetes.get("pod", WORKER, NAMESPACE)["metadata"]["uid"]
    eventually(lambda: f"InstanceId={uid}" in slurm.node(), what="the instance id")


def test_a_slurmd_that_is_killed_alone_harms_no_job(slurm: SupervisedSlurm, job: str) -> None:
    before = slurm.process("slurmd")
    slurm.run("sh", "-c", KILL_SLURMD)
    eventually(lambda: slurm.process("slurmd") not in ("", before), what="another slurmd")
    assert slurm.run("srun", "--overlap", "--mem=50", "echo", "still here") == "still here"
    ends_well(slurm, job)
    assert slurm.restarts(WORKER) == 0


def test_a_slurm_conf_that_slurmctld_refuses_leaves_it_running(slurm: SupervisedSlurm, job: str) -> None:
    before = slurm.process("slurmctld", CONTROLLER)
    slurm.configure(CONF.replace("SelectType=select/cons_tres", "SelectType=select/nonsense"))
    with pytest.raises(BedError):
        slurm.run("scontrol", "reconfigure")
    assert "UP" in slurm.run("scontrol", "ping")
    assert eventually(lambda: slurm.process("slurmctld", CONTROLLER)) == before
    slurm.configure(CONF)
    slurm.run("scontrol", "reconfigure")
    eventually(lambda: slurm.process("slurmctld", CONTROLLER) not in ("", before), what="the successor")
    assert "UP" in slurm.run("scontrol", "ping")
    ends_well(slurm, job)
    assert slurm.restarts(CONTROLLER) == slurm.restarts(WORKER) == 0


def test_a_value_that_slurmd_refuses_leaves_it_running(slurm: SupervisedSlurm, job: str) -> None:
    before = slurm.process("slurmd")
    slurm.configure(CONF.replace("proctrack/linuxproc", "proctrack/nosuch"))
    slurm.run("scontrol", "reconfigure")
    logs = ("logs", f"--namespace={NAMESPACE}", WORKER)
    eventually(lambda: "reconfigure failed" in slurm.kubernetes(*logs), what="slurmd's refusal")
    assert eventually(lambda: slurm.process("slurmd")) == before
    slurm.configure(CONF)
    slurm.run("scontrol", "reconfigure")
    ends_well(slurm, job)
    assert slurm.restarts(CONTROLLER) == slurm.restarts(WORKER) == 0


def test_a_pod_that_is_deleted_waits_for_its_job(slurm: SupervisedSlurm, job: str) -> None:
    slurm.kubernetes.delete("pod", WORKER, namespace=NAMESPACE, wait=False)
    eventually(lambda: "DRAIN" in slurm.node(), what="the drain")
    assert slurm.job(job)["JobState"] == "RUNNING"
    slurm.run("touch", "/tmp/go")
    eventually(lambda: not slurm.kubernetes.get("pod", WORKER, NAMESPACE), what="the end of the pod")
    shown = slurm.run("scontrol", "--oneliner", "show", "job", job, pod=CONTROLLER)
    assert " JobState=COMPLETED " in shown
