"""Many SlurmJobs while operator, companions, red-box, agents, resourced, kubelets, API server, slurmctld and
slurmdbd are killed, the login node's cable is cut, nodes are drained; with containers and on virtual nodes.

At the end one job in Slurm has ended for each SlurmJob, its file and `kubectl logs` are whole, its status is
what sacct says. What slurmctld forgot before it started was submitted again; what had started says so.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from redbox.agents.transports.sudo import AGENT_PATH
from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import TENANTS, Kubernetes
from redbox_bed.hosts.host import Host
from redbox_bed.kube import kube_cluster
from tests.e2e.harness.slurmctld_restart import administrator
from tests.e2e.harness.slurmjobs import WITHIN_S, Applied, SlurmJobs, eventually, is_whole, kill
from tests.e2e.harness.virtual_delivery import approve

JOBS = int(os.environ.get("STORM_JOBS", "60"))
BLOWS_S = float(os.environ.get("STORM_SECONDS", "45"))
SEED = int(os.environ.get("STORM_SEED", "20261121"))
CALMS_WITHIN_S = 900.0
NO_END = {"PENDING", "RUNNING"}  # of forgotten jobs, for ever
BEGAN_AGAIN = {"REQUEUED", "NODE_FAIL"}  # by Slurm itself, under the same id: a node refused the job, or fell
SCRIPT = "#SBATCH --mem=20M\nfor i in $(seq 1 20); do seq $i 200; sleep 0.1; done\nexit {code}"
OUTPUT = "".join(f"{number}\n" for part in range(1, 21) for number in range(part, 201))


@dataclass
class Storm:
    """What is killed, and what was."""

    bed: Bed
    kubectl: Kubernetes
    chance: random.Random
    delivery: str
    kills: dict[str, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    """Pods that it deleted, or whose node it drained: one that had left its last word is not made again."""

    def __post_init__(self) -> None:
        self.left = self._shuffled()

    def strike(self, jobs: list[Applied]) -> None:
        """The next fault, each kind once before any comes again, and its repair where nothing else does."""
        self.left = self.left or self._shuffled()
        name = self.left.pop()
        self._faults(jobs)[name]()
        self.kills[name] = self.kills.get(name, 0) + 1

    def _shuffled(self) -> list[str]:
        names = list(self._faults([]))
        return self.chance.sample(names, len(names))

    def _faults(self, jobs: list[Applied]) -> dict[str, Callable[[], None]]:
        login = self.bed.host("login")
        faults: dict[str, Callable[[], None]] = {
            "operator": lambda: kill(self.bed, "redbox-operator"),
            "companion": lambda: self._delete_companion(self.chance.choice(jobs)),
            "red-box": lambda: self._restart_redbox(login),
            "kubelet": lambda: self._restart(self.bed.host(self.chance.choice(["k1", "k2"])), "kubelet"),
            "API server": lambda: self._restart(self.bed.host("k0"), "kube-apiserver"),
            "node of Kubernetes": lambda: self._drain(self.chance.choice(["k1", "k2"])),
            "node of Slurm": lambda: self._drain_in_slurm(login, self.chance.choice(["n1", "n2", "n3"])),
            "slurmctld": lambda: self._restart_slurm("slurmctld"),
            "slurmdbd": lambda: self._restart_slurm("slurmdbd"),
            "agents": lambda: self._kill_agents(login),
            "cable of the login node": lambda: self._cut_cable(login),
        }
        if self.delivery == "Virtual":
            faults["resourced"] = lambda: kill(self.bed, "redbox-resourced")
        return faults

    def _delete_companion(self, job: Applied) -> None:
        self.deleted.add(job.pod)
        job("delete", "pod", job.pod, "--ignore-not-found", "--wait=false")

    def _restart_redbox(self, login: Host) -> None:
        login.kill(login_node.SERVICE)
        time.sleep(self.chance.uniform(0, 3))
        login_node.start(login)

    def _restart(self, host: Host, daemon: str) -> None:
        host.kill(daemon)
        kube_cluster.up(self.bed, Progress.silent())

    def _restart_slurm(self, daemon: str) -> None:
        self.bed.host("ctl").kill(daemon)
        time.sleep(self.chance.uniform(0, 3))
        self.bed.slurms[0].up()

    def _kill_agents(self, login: Host) -> None:
        agents = login.run("pgrep", "--uid", ",".join(TENANTS), "--full", AGENT_PATH, check=False)
        login.run("kill", "-KILL", *agents.stdout.split(), check=False)

    def _cut_cable(self, login: Host) -> None:
        login.link(up=False)
        time.sleep(self.chance.uniform(1, 4))
        login.link(up=True)

    def _drain(self, node: str) -> None:
        """As before its maintenance: companions, operator and resourced are evicted if they are there."""
        on_it = f"--field-selector=spec.nodeName={node}"
        self.deleted.update(
            self.kubectl(
                "get", "pods", "--all-namespaces", on_it, "--output=jsonpath={..metadata.name}"
            ).split()
        )
        try:
            self.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s")
        finally:
            self.kubectl("uncordon", node)

    def _drain_in_slurm(self, login: Host, node: str) -> None:
        update = ("scontrol", "update", f"nodename={node}")
        login.run(*update, "state=drain", "reason=storm")
        time.sleep(self.chance.uniform(0, 3))
        login.run(*update, "state=resume", check=False)  # the administrator may have been first


@pytest.mark.timeout(1800)
def test_after_a_storm_everything_is_as_slurm_says(bed: Bed, jobs: SlurmJobs, delivery: str) -> None:
    storm = Storm(bed, jobs.kubectl, random.Random(SEED), delivery)
    applied: list[Applied] = []
    codes: dict[str, int] = {}
    ends_at = time.monotonic() + BLOWS_S
    with administrator(bed):
        while len(applied) < JOBS or storm.left or time.monotonic() < ends_at:
            if len(applied) < JOBS:
                code = storm.chance.choice([0, 0, 0, 5])
                job = _applied(jobs, storm.chance.choice(TENANTS), SCRIPT.format(code=code))
                applied.append(job)
                codes[job.name] = code
            if len(applied) % 6 == 0 or len(applied) == JOBS:
                storm.strike(applied)
        faults = [fault for job in applied for fault in _faults(job, codes[job.name], storm.deleted)]
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


def _log_of(job: Applied, attempt: int) -> str:
    """Users try again while what was killed last is away, as they do with the API server.

    A resourced that came up on another node has another address, for which an administrator approves a
    certificate.
    """
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return job.whole_output(attempt)
        except BedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)
            with suppress(BedError):
                approve(job.kubectl)


def _faults(job: Applied, code: int, deleted: set[str]) -> list[str]:
    phase = "Succeeded" if code == 0 else "Failed"
    status = job.reaches("Succeeded", "Failed", "Cancelled", within_s=CALMS_WITHIN_S)
    state = "COMPLETED" if code == 0 else "FAILED"
    rows = [row for row in job.in_slurm() if row[1] not in NO_END]
    ids = [row for row in rows if row[1] not in BEGAN_AGAIN]
    if status.get("reason") == "ForgottenBySlurm":
        may_retry = code == 0 and "It may have started" not in status["message"]
        return [f"{job.name}: not submitted again: {status['message']}"] if may_retry else []
    found = []
    if ids != [(status.get("jobID"), state)]:
        found.append(f"{job.name}: sacct has {rows}, the status says {status.get('jobID')}")
    if (status["phase"], status.get("exitCode")) != (phase, code):
        found.append(f"{job.name}: {status['phase']} {status.get('exitCode')}, not {phase} {code}")
    path = f"{status.get('workingDirectory')}/slurm-{status.get('jobID')}.out"
    written = job.login.run("cat", path, check=False).stdout
    if written != OUTPUT:
        found.append(f"{job.name}: its output has {len(written)} bytes of {len(OUTPUT)}")
    pod = job.pod_of(status["attempts"])
    if job.get("pod", pod) or pod not in deleted:
        log = _log_of(job, status["attempts"])
        if not is_whole(log, OUTPUT):
            found.append(f"{job.name}: its log has {len(log)} bytes of {len(OUTPUT)}")
    told = job.events()
    attempts = status["attempts"]
    if told.count("Submitted") > attempts or any(told.count(end) > 1 for end in ("Succeeded", "Failed")):
        found.append(f"{job.name}: told twice: {told}")
    return found
