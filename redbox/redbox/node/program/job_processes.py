"""Which processes of this node are of a job, and whether a socket is one of theirs.

By their cgroup, by the slurmstepd above them, which says its step in its title, and where a node hides the
processes of others by the variable that Slurm sets, also of one above them: Apptainer takes the variables of
its own.
"""

import os
from contextlib import suppress
from typing import Dict, Iterator, Optional, Set

JOB_ID = b"SLURM_JOB_ID"
STEPD = b"slurmstepd: ["
Environment = Dict[bytes, bytes]
SOCKETS_OF_JOB: Set[int] = set()
"""Those that were found to be the job's: a look at all processes is not repeated for each connection."""
MOST_SOCKETS = 1024


def is_socket_of_job(inode: int, job: str) -> bool:
    """Whether a process of the job holds it; also where no process that can be seen does."""
    if inode in SOCKETS_OF_JOB:
        return True
    holders = [pid for pid in own_processes() if holds_socket(pid, inode)]
    if any(is_of_job(pid, job) for pid in holders):
        if len(SOCKETS_OF_JOB) >= MOST_SOCKETS:
            SOCKETS_OF_JOB.clear()
        SOCKETS_OF_JOB.add(inode)
        return True
    return not holders


def own_processes() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if os.stat("/proc/" + name).st_uid == os.getuid():
                    yield int(name)


def holds_socket(pid: int, inode: int) -> bool:
    wanted = "socket:[{}]".format(inode)
    folder = "/proc/{}/fd".format(pid)
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):
                if os.readlink("{}/{}".format(folder, name)) == wanted:
                    return True
    return False


def is_of_job(pid: int, job: str) -> bool:
    if "/job_{}/".format(job) in cgroups_of(pid):
        return True
    while pid:
        title = step_title(pid)
        if title is not None:
            return title.startswith(job + ".")
        if environment_of(pid).get(JOB_ID) == job.encode():
            return True
        pid = parent_of(pid)
    return False


def cgroups_of(pid: int) -> str:
    try:
        with open("/proc/{}/cgroup".format(pid), errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def step_title(pid: int) -> Optional[str]:
    """What a slurmstepd says that it runs: "4711.batch"; None for other processes."""
    try:
        with open("/proc/{}/cmdline".format(pid), "rb") as file:
            title = file.read(100)
    except OSError:
        return None
    return title[len(STEPD) :].partition(b"]")[0].decode("latin-1") if title.startswith(STEPD) else None


def parent_of(pid: int) -> int:
    return stat_field(pid, 1)


def stat_field(pid: int, number: int) -> int:
    """A field behind the program's name, which may have blanks."""
    try:
        with open("/proc/{}/stat".format(pid), "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[number])
    except (OSError, IndexError, ValueError):
        return 0


def environment_of(pid: int) -> Environment:
    try:
        with open("/proc/{}/environ".format(pid), "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    return {name: value for name, equals, value in (entry.partition(b"=") for entry in entries) if equals}
