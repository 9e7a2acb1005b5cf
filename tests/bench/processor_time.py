"""CPU time of the bed's processes: of each that stays, of what it has run and waited for, and of each host.

/proc/PID/stat has a process's own time and that of its ended children, to 10 ms. A host's control group has
the time of all its processes, also of those that have ended: what no name claims is the rest of its host.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role

TICKS_PER_MS = os.sysconf("SC_CLK_TCK") / 1000
AGENT = "libexec/redbox/agent"
BY_COMM = {
    "slurmctld": "slurmctld",
    "etcd": "etcd",
    "kube-apiserver": "apiserver",
    "kubelet": "kubelet",
    "mariadbd": "mariadb",
}
BY_COMMAND = {
    re.compile(r"/redbox\0serve\0"): "redbox",
    re.compile(r"redbox[-_]operator\0"): "operator",
    re.compile(r"redbox[-_]resourced\0"): "resourced",
    re.compile(r"redbox[-_]hosting\0"): "hosting",
}
COMMANDS_OF = {"agent": "sbatch", "redbox": "squeue"}
"""What the children of a process are called; those of others are part of their host's rest."""
REST_OF = {
    Role.LOGIN: "login-rest",
    Role.CONTROLLER: "controller-rest",
    Role.COMPUTE: "compute",
    Role.CONTROL_PLANE: "kube-others",
    Role.NODE: "containerd",
}
PODS = "pods"
CONTROLLERS = frozenset({"operator", "resourced", "hosting"})
"""Processes in pods that have a line of their own."""
Costs = defaultdict[str, float]
"""By the name of what they are of; what has no cost is 0."""
POD_GROUPS = ("kubepods*", "k8s.io")
"""Where containers are: below the kubelet's groups, or containerd's own where a kubelet makes none."""


@dataclass(frozen=True)
class ProcessTime:
    """Milliseconds so far: the process's own, and those of its ended children."""

    own: float
    children: float


@dataclass(frozen=True)
class ProcessorTime:
    """At one moment. `processes` are by name, pid and start; `hosts` and `pods` by host."""

    processes: Mapping[tuple[str, str, int, int], ProcessTime]
    hosts: Mapping[str, float]
    pods: Mapping[str, float]


def name_of(comm: str, command: str) -> str | None:
    """What a process is called in the account; None for all that have no line of their own."""
    if comm in BY_COMM:
        return BY_COMM[comm]
    if AGENT in command:
        return None if comm == "sudo" else "agent"
    return next((name for pattern, name in BY_COMMAND.items() if pattern.search(command)), None)


def read_processor_time(bed: Bed) -> ProcessorTime:
    processes = {
        (host, name, pid, started): time
        for host, name, pid in named_processes(bed)
        for started, time in time_of(pid)
    }
    names = [host.name for host in bed.plan.hosts]
    folders = {name: _accounting_folder(bed) / name for name in names}
    pods = {
        name: sum(_used_ms(group) for glob in POD_GROUPS for group in folders[name].glob(glob))
        for name in names
    }
    return ProcessorTime(processes, {name: _used_ms(folders[name]) for name in names}, pods)


def named_processes(bed: Bed) -> Iterator[tuple[str, str, int]]:
    """Host, name and pid."""
    for host in bed.plan.hosts:
        for pid in bed.cgroups.members(host.name):
            try:
                comm = Path(f"/proc/{pid}/comm").read_text().strip()
                command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if name := name_of(comm, command):
                yield host.name, name, pid


def time_of(pid: int) -> Iterable[tuple[int, ProcessTime]]:
    """With its start; nothing of one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ()
    user, system, user_of_children, system_of_children = (
        int(field) / TICKS_PER_MS for field in fields[11:15]
    )
    return ((int(fields[19]), ProcessTime(user + system, user_of_children + system_of_children)),)


def _accounting_folder(bed: Bed) -> Path:
    """The bed's group in the hierarchy that counts CPU time."""
    files = ("cpuacct.usage", "cpu.stat")
    return next(folder for file in files for folder in bed.cgroups.folders if (folder / "k1" / file).exists())


def _used_ms(group: Path) -> float:
    """Of all that is, and was, in the group and below."""
    if (group / "cpuacct.usage").exists():
        return int((group / "cpuacct.usage").read_text()) / 1e6
    found = re.search(r"usage_usec (\d+)", (group / "cpu.stat").read_text())
    assert found
    return int(found[1]) / 1e3


def spent(before: ProcessorTime, after: ProcessorTime, roles: Mapping[str, Role]) -> Costs:
    """Milliseconds between the two by name; what nothing claims is its host's rest. Pure."""
    by_name: Costs = defaultdict(float)
    rest = {host: used - before.hosts[host] for host, used in after.hosts.items()}
    none = ProcessTime(0, 0)
    for key, now in after.processes.items():
        host, name, *_ = key
        then = before.processes.get(key, none)
        by_name[name] += now.own - then.own
        rest[host] -= now.own - then.own
        if name in COMMANDS_OF:
            by_name[COMMANDS_OF[name]] += now.children - then.children
            rest[host] -= now.children - then.children
    for host, used in after.pods.items():
        controllers = sum(
            now.own - before.processes.get(key, none).own
            for key, now in after.processes.items()
            if key[0] == host and key[1] in CONTROLLERS
        )
        others = used - before.pods[host] - controllers
        by_name[PODS] += others
        rest[host] -= others
    for host, used in rest.items():
        by_name[REST_OF.get(roles[host], "network")] += used
    by_name["all"] = sum(after.hosts.values()) - sum(before.hosts.values())
    return by_name
