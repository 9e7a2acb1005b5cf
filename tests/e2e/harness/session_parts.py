"""Each part that a session, or a connection through a Service, goes through: killed, and back again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from redbox.agents.transports.sudo import AGENT_PATH
from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.progress import Progress
from redbox_bed.kube import kube_cluster
from tests.e2e.harness.slurmjobs import Applied, kill
from tests.e2e.harness.waiting import eventually

KUBERNETES_NODES = ("k1", "k2")


@dataclass(frozen=True)
class Part:
    """How it is killed, and what that is for sessions."""

    kill: Callable[[], object]
    session_goes_on: bool = False
    says_why: bool = False
    """Whether the end of a session has a sentence: from other parts none can come."""
    is_kubectls: bool = False
    """Whether the session's kubectl ends, and its program in the companion's container does not."""


def parts(bed: Bed, job: Applied, delivery: str) -> dict[str, Part]:
    is_virtual = delivery == "Virtual"
    own = (
        {"resourced": Part(partial(kill, bed, "redbox-resourced"))}
        if is_virtual
        else {"companion": Part(partial(_kill_companion, bed))}
    )
    serving = f"{job.name}-helper" if is_virtual else job.pod
    return {
        "red-box": Part(partial(_kill_redbox, bed), says_why=True),
        "agents": Part(partial(_kill_agents, bed), says_why=True),
        "slurmctld": Part(partial(_kill_slurmctld, bed), session_goes_on=True),
        **own,
        "the companion's node": Part(partial(_move, job, serving), session_goes_on=is_virtual),
        "API server": Part(partial(_kill_api_server, bed), is_kubectls=not is_virtual),
    }


def _kill_redbox(bed: Bed) -> None:
    bed.host("login").kill(login_node.SERVICE)
    login_node.start(bed.host("login"))


def _kill_agents(bed: Bed) -> None:
    login = bed.host("login")
    agents = login.run("pgrep", "--uid=alice", "--full", AGENT_PATH).stdout.split()
    login.run("kill", "-KILL", *agents)


def _kill_slurmctld(bed: Bed) -> None:
    bed.host("ctl").kill("slurmctld")
    bed.slurms[0].up()


def _kill_api_server(bed: Bed) -> None:
    bed.host("k0").kill("kube-apiserver")
    kube_cluster.up(bed, Progress.silent())


def _kill_companion(bed: Bed) -> None:
    for node in KUBERNETES_NODES:  # not the program of the session
        bed.host(node).run("sh", "-c", "kill -9 $(pgrep -f '[r]edbox-companion$')", check=False)


def _move(job: Applied, pod: str) -> None:
    """To another node, as by `kubectl drain`."""

    def node() -> str:
        return str(job.get("pod", pod).get("spec", {}).get("nodeName", ""))

    before = node()
    job("cordon", before)
    try:
        job("delete", "pod", pod, "--grace-period=1", "--timeout=60s")
        eventually(lambda: node() not in {"", before}, what=f"another node of {pod}")
    finally:
        job("uncordon", before)
