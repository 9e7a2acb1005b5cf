"""Many SlurmJobs while operator, companions, red-box, kubelets and API server are killed and nodes drained.

At the end there is one job in Slurm for each SlurmJob, its output is whole, its status is what sacct says.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from redbox_bed import kube, login_node
from redbox_bed.bed import Bed
from redbox_bed.delivery import Kubernetes
from redbox_bed.errors import BedError
from redbox_bed.host import Host
from redbox_bed.progress import Progress
from tests.e2e import kubernetes_jobs
from tests.e2e.kubernetes_jobs import SlurmJob, Tenant, eventually, kill_operator

login, kubectl = kubernetes_jobs.login, kubernetes_jobs.kubectl
JOBS = int(os.environ.get("STORM_JOBS", "60"))
BLOWS_S = float(os.environ.get("STORM_SECONDS", "45"))
SEED = int(os.environ.get("STORM_SEED", "20261121"))
CALMS_WITHIN_S = 900.0
SCRIPT = "#!/bin/sh\n#SBATCH --mem=20M\nfor i in $(seq 1 20); do seq $i 200; sleep 0.1; done\nexit {code}\n"
OUTPUT = "".join(f"{number}\n" for part in range(1, 21) for number in range(part, 201))


@dataclass
class Storm:
    """What is killed, and what was."""

    bed: Bed
    kubectl: Kubernetes
    chance: random.Random
    kills: dict[str, int] = field(default_factory=dict)

    def strike(self, jobs: list[SlurmJob]) -> None:
        """One fault, and its repair, if Kubernetes does not repair it itself."""
        login = self.bed.host("login")
        faults: dict[str, Callable[[], None]] = {
            "operator": lambda: kill_operator(self.bed),
            "companion": lambda: self._delete_companion(self.chance.choice(jobs)),
            "red-box": lambda: self._restart_redbox(login),
            "kubelet": lambda: self._restart(self.bed.host(self.chance.choice(["k1", "k2"])), "kubelet"),
            "API server": lambda: self._restart(self.bed.host("k0"), "kube-apiserver"),
            "node of Kubernetes": lambda: self._drain(self.chance.choice(["k1", "k2"])),
            "node of Slurm": lambda: self._drain_in_slurm(login, self.chance.choice(["n1", "n2", "n3"])),
        }
        name = self.chance.choices(list(faults), [3, 6, 3, 1, 1, 1, 2])[0]
        faults[name]()
        self.kills[name] = self.kills.get(name, 0) + 1

    def _delete_companion(self, job: SlurmJob) -> None:
        namespace = f"-n={job.tenant.namespace}"
        self.kubectl("delete", "pod", f"{job.name}-job", namespace, "--ignore-not-found", "--wait=false")

    def _restart_redbox(self, login: Host) -> None:
        login.kill(login_node.SERVICE)
        time.sleep(self.chance.uniform(0, 3))
        login_node.start(login)

    def _restart(self, host: Host, daemon: str) -> None:
        host.kill(daemon)
        kube.up(self.bed, Progress.silent())

    def _drain(self, node: str) -> None:
        """As before its maintenance: companions are evicted, and the operator, if it is there."""
        try:
            self.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s")
        finally:
            self.kubectl("uncordon", node)

    def _drain_in_slurm(self, login: Host, node: str) -> None:
        update = ("scontrol", "update", f"nodename={node}")
        login.run(*update, "state=drain", "reason=storm")
        time.sleep(self.chance.uniform(0, 3))
        login.run(*update, "state=resume")


@pytest.mark.timeout(1800)
def test_after_a_storm_everything_is_as_slurm_says(bed: Bed, kubectl: Kubernetes) -> None:
    login = bed.host("login")
    tenants = [Tenant(kubectl, login, name) for name in ("alice", "bob")]
    storm = Storm(bed, kubectl, random.Random(SEED))
    jobs: list[SlurmJob] = []
    codes: dict[str, int] = {}
    ends_at = time.monotonic() + BLOWS_S
    while len(jobs) < JOBS or time.monotonic() < ends_at:
        if len(jobs) < JOBS:
            code = storm.chance.choice([0, 0, 0, 5])
            job = _applied(storm.chance.choice(tenants), SCRIPT.format(code=code))
            jobs.append(job)
            codes[job.name] = code
        if len(jobs) % 10 == 0 or len(jobs) == JOBS:
            storm.strike(jobs)
    try:
        faults = [fault for job in jobs for fault in _faults(login, job, codes[job.name])]
        assert faults == [], storm.kills
        assert len(storm.kills) >= 3, storm.kills
    finally:
        for tenant in tenants:
            tenant.clean()


def _applied(tenant: Tenant, script: str) -> SlurmJob:
    """Users try again while the API server is away."""

    def apply() -> SlurmJob | None:
        try:
            return tenant.apply(script, resources={"time": "5"})
        except BedError:
            return None

    return eventually(apply, what="an API server that answers")


def _faults(login: Host, job: SlurmJob, code: int) -> list[str]:
    phase = "Succeeded" if code == 0 else "Failed"
    status = job.reaches("Succeeded", "Failed", "Cancelled", within_s=CALMS_WITHIN_S)
    state = "COMPLETED" if code == 0 else "FAILED"
    ids = job.in_slurm()
    found = []
    if ids != [(status.get("jobID"), state)]:
        found.append(f"{job.name}: sacct has {ids}, the status says {status.get('jobID')}")
    if (status["phase"], status.get("exitCode")) != (phase, code):
        found.append(f"{job.name}: {status['phase']} {status.get('exitCode')}, not {phase} {code}")
    path = f"{status.get('workingDirectory')}/slurm-{status.get('jobID')}.out"
    written = login.run("cat", path, check=False).stdout
    if written != OUTPUT:
        found.append(f"{job.name}: its output has {len(written)} bytes of {len(OUTPUT)}")
    told = job.events()
    if any(told.count(reason) > 1 for reason in ("Submitted", "Succeeded", "Failed")):
        found.append(f"{job.name}: told twice: {told}")
    return found
