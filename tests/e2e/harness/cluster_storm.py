"""What is killed, cut off or drained of Red Box, Slurm and Kubernetes while users go on.

Each fault is repaired where nothing else repairs it. A kind comes again once each has come.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from redbox.agents.transports.sudo import AGENT_PATH
from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import TENANTS
from redbox_bed.hosts.host import Host
from redbox_bed.kube import kube_cluster
from tests.e2e.harness.accounting import SINCE
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.slurmjobs import kill
from tests.e2e.harness.waiting import WITHIN_S, eventually

NO_END = {"PENDING", "RUNNING"}  # of forgotten jobs, for ever
BEGAN_AGAIN = {"REQUEUED", "NODE_FAIL"}  # by Slurm itself, under the same id: a node refused the job, or fell
PLACES_FREE_WITHIN_S = 600
KUBE_NODES = ("k1", "k2")
SLURM_NODES = ("n1", "n2", "n3")


@dataclass
class ClusterStorm:
    """One of them. `own` are faults that only its users can make."""

    bed: Bed
    kubectl: Kubernetes
    chance: random.Random
    has_resourced: bool
    own: dict[str, Callable[[], None]] = field(default_factory=dict)
    kills: dict[str, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    """Kinds of faults that are still to come in this round."""
    evicted: set[str] = field(default_factory=set)
    """Pods whose node it drained."""

    def __post_init__(self) -> None:
        self.left = self._shuffled()

    def strike(self) -> None:
        """The next fault."""
        self.left = self.left or self._shuffled()
        name = self.left.pop()
        self._faults()[name]()
        self.kills[name] = self.kills.get(name, 0) + 1

    def _shuffled(self) -> list[str]:
        names = list(self._faults())
        return self.chance.sample(names, len(names))

    def _faults(self) -> dict[str, Callable[[], None]]:
        login = self.bed.host("login")
        faults: dict[str, Callable[[], None]] = {
            "operator": lambda: kill(self.bed, "redbox-operator"),
            "red-box": lambda: self._restart_redbox(login),
            "kubelet": lambda: self._restart(self.bed.host(self.chance.choice(KUBE_NODES)), "kubelet"),
            "API server": lambda: self._restart(self.bed.host("k0"), "kube-apiserver"),
            "node of Kubernetes": lambda: self._drain(self.chance.choice(KUBE_NODES)),
            "node of Slurm": lambda: self._drain_in_slurm(login, self.chance.choice(SLURM_NODES)),
            "slurmctld": lambda: self._restart_slurm("slurmctld"),
            "slurmdbd": lambda: self._restart_slurm("slurmdbd"),
            "agents": lambda: self._kill_agents(login),
            "cable of the login node": lambda: self._cut_cable(login),
            **self.own,
        }
        if self.has_resourced:
            faults["resourced"] = lambda: kill(self.bed, "redbox-resourced")
        return faults

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
        names = ("get", "pods", "--all-namespaces", on_it, "--output=jsonpath={..metadata.name}")
        try:
            self.kubectl("cordon", node)  # or a pod that comes now is evicted, and not in the list
            self.evicted.update(self.kubectl(*names).split())
            self.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s")
        finally:
            self.kubectl("uncordon", node)

    def _drain_in_slurm(self, login: Host, node: str) -> None:
        update = ("scontrol", "update", f"nodename={node}")
        login.run(*update, "state=drain", "reason=storm")
        time.sleep(self.chance.uniform(0, 3))
        login.run(*update, "state=resume", check=False)  # the administrator may have been first


def accounting_catches_up(login: Host) -> None:
    """Until slurmdbd has what slurmctld had kept for it.

    What a killed slurmctld had kept is lost, so that the accounting has nothing of some jobs that ran. The
    job is found by its name: a slurmctld that came back gives the ids of forgotten jobs out again. Jobs that
    ended while it was killed keep their places until it has asked their nodes, every few minutes.
    """
    name = f"last-{uuid.uuid4().hex}"
    ran = ("sbatch", "--wait", "--wrap=true", "--output=/dev/null", f"--job-name={name}")
    login.run(*ran, user=TENANTS[0], timeout=PLACES_FREE_WITHIN_S)
    shown = ("sacct", SINCE, "-XDnPa", "-o", "State", f"--name={name}")
    eventually(lambda: "COMPLETED" in login.run(*shown).stdout.split(), what="an accounting that is whole")


def read_in_the_end(read: Callable[[], str]) -> str:
    """A log: users try again while what was killed last is away, as they do with the API server."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return read()
        except BedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)
