"""A folder of control groups for the bed, one below it for each host: made, entered, emptied, removed.

Only this module knows which cgroup version the machine has; `Cgroups.of_machine` makes that choice.

v1 (also a hybrid machine): the bed has a folder in every controller's hierarchy.
v2: one folder with the controllers delegated. A cgroup that hands controllers down may hold no process
    itself, so a host's processes live in its leaf `init`, beside the groups that slurmd or the kubelet make.
"""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from redbox_bed.core.errors import BedError, NotPossibleError
from redbox_bed.core.processes import Process, is_in_namespace

_MOUNTS = Path("/proc/self/mounts")
_REMOVAL_SECONDS = 20
_WANTED_V1 = frozenset({"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids", "blkio"})
_NEEDED_V1 = frozenset({"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids"})
_NEEDED_V2 = ("cpuset", "cpu", "memory", "pids")
_LEAF = "init"
MACHINE = "machine"
"""The group of the bed's processes that are outside all hosts."""


class Cgroups(ABC):
    """The bed's control groups; hosts are named, the processes outside all hosts are of host "machine"."""

    slurm_plugin: str
    """What Slurm's cgroup.conf calls this version."""

    entered_inside = False
    """Whether a process enters a host's group only once it is in the host's namespaces (enter.sh)."""

    def __init__(self, bed: str) -> None:
        self.bed = bed

    @staticmethod
    def of_machine(bed: str) -> Cgroups:
        """The version that this machine has its memory controller in."""
        mounts = _MOUNTS.read_text()
        hierarchies = v1_hierarchies(mounts)
        if frozenset().union(*hierarchies.values()) >= _NEEDED_V1:
            return CgroupsV1(bed, hierarchies)
        unified = v2_mount(mounts)
        if unified is not None and set(_NEEDED_V2) <= set(
            (unified / "cgroup.controllers").read_text().split()
        ):
            return CgroupsV2(bed, unified)
        raise NotPossibleError(
            "this machine's control groups cannot be used: neither version 1 nor version 2 offers the "
            "controllers cpu, cpuset, memory and pids under /sys/fs/cgroup; mount cgroup2 there"
        )

    @property
    @abstractmethod
    def folders(self) -> tuple[Path, ...]:
        """The bed's own folder in each hierarchy."""

    @property
    @abstractmethod
    def description(self) -> str:
        """For init.sh: which hierarchies to mount inside a host."""

    @abstractmethod
    def create(self, host: str) -> None:
        """Make the host's groups, unless they are there."""

    @abstractmethod
    def settle(self, host: str) -> None:
        """Called once the host's cgroup namespace exists and before anything is started in it."""

    @abstractmethod
    def delegate(self, host: str, path: str) -> None:
        """Make a group below the host's for a daemon that manages groups itself, unless it is there."""

    def birth_files(self, host: str) -> list[str]:
        """Where a process writes its pid to be in what becomes the root of the host's cgroup namespace."""
        return [str(folder / host / "cgroup.procs") for folder in self.folders]

    def entry_files(self, host: str) -> list[str]:
        """Where a process writes its pid to be one of the host's."""
        return self.birth_files(host)

    def adopt(self, host: str, pid: int) -> None:
        """Make a process that was started elsewhere one of the host's."""
        for file in self.entry_files(host):
            Path(file).write_text(str(pid))

    def members(self, host: str = ".") -> list[int]:
        """The pids of all processes of a host, or of the whole bed."""
        return [pid for group in _below(self.folders[0] / host) for pid in _pids(group)]

    def kill(self, host: str = ".") -> None:
        """Kill whatever lives in the host's groups until nothing does, also what had just forked.

        All of them stop first, so that none acts on the end of another: as where the power is cut.
        """
        deadline = time.monotonic() + _REMOVAL_SECONDS
        for process in filter(None, map(Process.of, self.members(host))):
            process.send(signal.SIGSTOP)
        while pids := self.members(host):
            if time.monotonic() > deadline:
                raise BedError(f"processes {pids} of {self.bed} cannot be killed")
            for process in filter(None, map(Process.of, pids)):
                process.send(signal.SIGKILL)
            time.sleep(0.01)

    def remove(self, host: str = ".") -> None:
        """Remove the host's groups, or all of the bed's, and end what an interrupted `up` still adds."""
        for folder in self.folders:
            self._remove_tree(folder, host)

    def _remove_tree(self, folder: Path, host: str) -> None:
        """A group can go only once the last dying process has left it."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while (folder / host).exists():
            try:
                for group in _below(folder / host):
                    group.rmdir()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise BedError(
                        f"the control group {folder / host} cannot be removed: {error.strerror}"
                    ) from error
                self.kill(host)
                time.sleep(0.01)

    def exists(self) -> bool:
        return any(folder.exists() for folder in self.folders)


class CgroupsV1(Cgroups):
    """One hierarchy for each controller, or for a few of them together."""

    slurm_plugin = "cgroup/v1"

    def __init__(self, bed: str, hierarchies: dict[Path, frozenset[str]]) -> None:
        super().__init__(bed)
        self._hierarchies = hierarchies

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(mount / self.bed for mount in self._hierarchies)

    @property
    def description(self) -> str:
        return " ".join(
            ["v1", *(",".join(sorted(controllers)) for controllers in self._hierarchies.values())]
        )

    def create(self, host: str) -> None:
        for mount, controllers in self._hierarchies.items():
            for folder in (mount / self.bed, mount / self.bed / host):
                folder.mkdir(exist_ok=True)
                if "cpuset" in controllers:
                    _inherit_cpuset(folder)

    def settle(self, host: str) -> None:
        """Nothing: a v1 group may hold processes and groups side by side."""

    def delegate(self, host: str, path: str) -> None:
        """Nothing: with v1 such daemons make what they need."""


class CgroupsV2(Cgroups):
    """The one hierarchy of a machine without v1 controllers."""

    slurm_plugin = "cgroup/v2"
    entered_inside = True

    def __init__(self, bed: str, mount: Path) -> None:
        super().__init__(bed)
        self._mount = mount

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self._mount / self.bed,)

    @property
    def description(self) -> str:
        return "v2"

    def create(self, host: str) -> None:
        group = self._mount / self.bed / host
        group.mkdir(parents=True, exist_ok=True)
        _delegate(self._mount)
        _delegate(self._mount / self.bed)
        (group / _LEAF).mkdir(exist_ok=True)

    def settle(self, host: str) -> None:
        """Move what booted the host into the leaf; only then can its root group hand controllers down.

        The parent of the host's PID 1 is outside and goes out: slurmd refuses a group with such a process.
        """
        group = self._mount / self.bed / host
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while (pids := _pids(group)) and time.monotonic() < deadline:  # one of them may just have forked
            for pid in pids:
                _move(pid, (group if is_in_namespace(pid) else group.parent / MACHINE) / _LEAF)
        _delegate(group)

    def delegate(self, host: str, path: str) -> None:
        group = self._mount / self.bed / host
        for name in Path(path).parts:
            _delegate(group)
            group /= name
            group.mkdir(exist_ok=True)

    def entry_files(self, host: str) -> list[str]:
        return [str(self._mount / self.bed / host / _LEAF / "cgroup.procs")]


def v1_hierarchies(mounts: str) -> dict[Path, frozenset[str]]:
    """The mount points of v1 controllers that a host is to have, from the text of /proc/self/mounts."""
    found: dict[Path, frozenset[str]] = {}
    for line in mounts.splitlines():
        _, mount, kind, options, *_ = line.split()
        controllers = _WANTED_V1 & set(options.split(","))
        if kind == "cgroup" and controllers and controllers not in found.values():
            found[Path(mount)] = controllers
    return found


def v2_mount(mounts: str) -> Path | None:
    for line in mounts.splitlines():
        _, mount, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(mount)
    return None


def _inherit_cpuset(folder: Path) -> None:
    """A new v1 cpuset is empty, and nothing can run in it."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not (folder / name).read_text().strip():
            (folder / name).write_text((folder.parent / name).read_text())


def _move(pid: int, group: Path) -> None:
    try:
        (group / "cgroup.procs").write_text(str(pid))
    except ProcessLookupError:
        return


def _delegate(group: Path) -> None:
    wanted = [f"+{name}" for name in ("cpuset", "cpu", "io", "memory", "pids") if name in _controllers(group)]
    try:
        (group / "cgroup.subtree_control").write_text(" ".join(wanted))
    except OSError as error:
        raise NotPossibleError(
            f"the control group {group} cannot hand its controllers down ({error.strerror}); "
            "if this is a container, start it with a cgroup namespace whose root holds no process"
        ) from error


def _controllers(group: Path) -> set[str]:
    return set((group / "cgroup.controllers").read_text().split())


def _below(folder: Path) -> Iterator[Path]:
    """The group and all groups in it, children first."""
    for path, _, _ in os.walk(folder, topdown=False):
        yield Path(path)


def _pids(group: Path) -> list[int]:
    try:
        return [int(word) for word in (group / "cgroup.procs").read_text().split()]
    except OSError:
        return []
