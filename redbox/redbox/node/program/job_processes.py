"""Which processes of this node are of a job, and whether a socket is one of theirs.

By their cgroup, by the slurmstepd above them, which says its step in its title, and where a node hides the
processes of others by the variable that Slurm sets, also of one above them: Apptainer takes the variables of
its own.
"""

import os
from contextlib import suppress
from typing import Dict, Iterator, Optional, Set, Tuple

JOB_ID = b"SLURM_JOB_ID"
STEPD_NAME = b"slurmstepd"
STEPD = STEPD_NAME + b": ["
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
    uid = os.getuid()
    for name in os.listdir("/proc"):
        if name.isdigit() and owner_of(int(name)) == uid:
            yield int(name)


def owner_of(pid: int) -> Optional[int]:
    """The user of a process; root where it does not let its user read it."""
    try:
        return os.stat("/proc/{}".format(pid)).st_uid
    except OSError:
        return None


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
    """Its environment is read last: that of a process which waits in the kernel may wait with it."""
    is_inside = is_in_cgroup_of(pid, job)
    if is_inside is not None:
        return is_inside
    leader, is_component = leader_of(job)
    above = []
    while pid:
        title = step_title(pid)
        if title is not None and (title.startswith(leader + ".") or not is_component):
            return title.startswith(leader + ".")
        above.append(pid)
        pid = parent_of(pid)
    return any(has_variable_of(each, job) for each in above)


def own_job(job: str) -> str:
    """A job as its processes have it: an array task has two ids; the component 7+1 of a het job stays."""
    return job if leader_of(job)[1] else os.environ.get("SLURM_JOB_ID") or job


def leader_of(job: str) -> Tuple[str, bool]:
    """The id that the variables have, and whether titles and cgroups may have another one.

    Each component of het job 7 is a job with an id of its own to slurmd, such as 8, and SLURM_JOB_ID is 7.
    """
    leader, plus, _ = job.partition("+")
    return leader, bool(plus)


def is_in_cgroup_of(pid: int, job: str) -> Optional[bool]:
    """None where Slurm tracks processes otherwise, or the group may be that of another component."""
    leader, is_component = leader_of(job)
    groups = cgroups_of(pid)
    if "/job_{}/".format(leader) in groups:
        return True
    return False if "/job_" in groups and "/step_" in groups and not is_component else None


def has_variable_of(pid: int, job: str) -> bool:
    return environment_of(pid).get(JOB_ID) == leader_of(job)[0].encode()


def cgroups_of(pid: int) -> str:
    try:
        with open("/proc/{}/cgroup".format(pid), errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def step_title(pid: int) -> Optional[str]:
    """What a slurmstepd says that it runs: "4711.batch"; None for other processes.

    It is root's, or that of a slurmd without root; the words of a user's other processes may wait as well.
    """
    try:
        with open("/proc/{}/comm".format(pid), "rb") as file:
            is_stepd = file.read().startswith(STEPD_NAME)
        if not is_stepd and owner_of(pid) == os.getuid() != 0:
            return None
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
