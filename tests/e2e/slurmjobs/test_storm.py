"""Many SlurmJobs while operator, companions, red-box, agents, resourced, kubelets, API server, slurmctld and
slurmdbd are killed, the login node's cable is cut, nodes are drained; with containers and on virtual nodes.

At the end one job in Slurm has ended for each SlurmJob, its file and `kubectl logs` are whole, its status is
what sacct says. What slurmctld forgot before it started was submitted again; what had started says so.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.delivery import TENANTS
from tests import nightly
from tests.e2e.harness.cluster_storm import (
    BEGAN_AGAIN,
    NO_END,
    ClusterStorm,
    accounting_catches_up,
    read_in_the_end,
)
from tests.e2e.harness.slurmctld_restart import administrator
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, is_whole
from tests.e2e.harness.waiting import eventually

JOBS = nightly.count("STORM_JOBS", 18, 60)
BLOWS_S = nightly.size("STORM_SECONDS", 15, 45)
SEED = int(os.environ.get("STORM_SEED", "20261121"))
CALMS_WITHIN_S = 900.0
SCRIPT = "#SBATCH --mem=20M\nfor i in $(seq 1 20); do seq $i 200; sleep 0.1; done\nexit {code}"
OUTPUT = "".join(f"{number}\n" for part in range(1, 21) for number in range(part, 201))


@pytest.mark.timeout(1800)
@pytest.mark.nightly(delivery="Virtual")
def test_after_a_storm_everything_is_as_slurm_says(bed: Bed, jobs: SlurmJobs, delivery: str) -> None:
    applied: list[Applied] = []
    codes: dict[str, int] = {}
    deleted: set[str] = set()
    chance = random.Random(SEED)

    def delete_companion() -> None:
        job = chance.choice(applied)
        deleted.add(job.pod)
        job("delete", "pod", job.pod, "--ignore-not-found", "--wait=false")

    own = {"companion": delete_companion}
    storm = ClusterStorm(bed, jobs.kubectl, chance, delivery == "Virtual", own)
    ends_at = time.monotonic() + BLOWS_S
    with administrator(bed):
        while len(applied) < JOBS or storm.left or time.monotonic() < ends_at:
            if len(applied) < JOBS:
                code = chance.choice([0, 0, 0, 5])
                job = _applied(jobs, chance.choice(TENANTS), SCRIPT.format(code=code))
                applied.append(job)
                codes[job.name] = code
            if len(applied) % 6 == 0 or len(applied) == JOBS:
                storm.strike()
        accounting_catches_up(bed.host("login"))
        faults = [
            fault for job in applied for fault in _faults(job, codes[job.name], deleted | storm.evicted)
        ]
    assert faults == [], storm.kills


def _applied(jobs: SlurmJobs, namespace: str, script: str) -> Applied:
    """Users try again while the API server is away."""
    limit = 3 if script.endswith("exit 0") else 0  # more attempts are for jobs that Slurm forgets

    def apply() -> Applied | None:
        try:
            return jobs.apply(script, namespace=namespace, backoffLimit=limit, resources={"time": "5"})
        except BedError:
            return None

    return eventually(apply, what="an API server that answers")


def _ends_in_slurm(job: Applied) -> list[tuple[str, str]]:
    """In the accounting, to which slurmctld sends later what ended while slurmdbd was away."""
    return [row for row in job.in_slurm() if row[1] not in NO_END | BEGAN_AGAIN]


def _has_ended(job: Applied, pod: str) -> bool:
    """A companion may still be on its way to a red-box that was killed while the job ended."""
    found = job.get("pod", pod)
    return not found or found["status"].get("phase") in ("Succeeded", "Failed")


def _faults(job: Applied, code: int, deleted: set[str]) -> list[str]:
    phase = "Succeeded" if code == 0 else "Failed"
    status = job.reaches("Succeeded", "Failed", "Cancelled", within_s=CALMS_WITHIN_S)
    state = "COMPLETED" if code == 0 else "FAILED"
    if status.get("reason") == "ForgottenBySlurm":
        may_retry = code == 0 and "It may have started" not in status["message"]
        return [f"{job.name}: not submitted again: {status['message']}"] if may_retry else []
    found = []
    try:
        ends = [(status.get("jobID"), state)]
        eventually(  # a slurmctld that was killed may take minutes to run again what had ended
            lambda: not job.in_slurm() or _ends_in_slurm(job) == ends, CALMS_WITHIN_S, what="that end"
        )
    except AssertionError:
        found.append(f"{job.name}: sacct has {job.in_slurm()}, the status says {status.get('jobID')}")
    if (status["phase"], status.get("exitCode")) != (phase, code):
        found.append(f"{job.name}: {status['phase']} {status.get('exitCode')}, not {phase} {code}")
    path = f"{status.get('workingDirectory')}/slurm-{status.get('jobID')}.out"
    written = job.login.run("cat", path, check=False).stdout
    if written != OUTPUT:
        found.append(f"{job.name}: its output has {len(written)} bytes of {len(OUTPUT)}")
    pod = job.pod_of(status["attempts"])
    runs = max(status.get("run") or 1, len(job.in_slurm()))
    eventually(lambda: _has_ended(job, pod), CALMS_WITHIN_S, what=f"the end of {pod}")
    if job.get("pod", pod) or pod not in deleted:
        log = read_in_the_end(lambda: job.whole_output(status["attempts"]))
        if not is_whole(log, OUTPUT, max(2, runs)):
            found.append(f"{job.name}: its log has {len(log)} bytes of {len(OUTPUT)} in {runs} runs")
    told = job.events()
    attempts = status["attempts"]
    if told.count("Submitted") > attempts or any(told.count(end) > runs for end in ("Succeeded", "Failed")):
        found.append(f"{job.name}: told twice: {told}")
    return found
