"""Where a session runs: environment and folder of the job's batch script, or inside of its container.

A step has the environment of srun, not that of the job, so it is read from the job's own processes in
/proc. Only processes of this user can be read, so that nothing here has a right that the user has not.
"""

import os
import shutil
from typing import Dict, Iterator, List, NamedTuple, Optional

JOB_ID, TASK_PID, STEP_ID = b"SLURM_JOB_ID", b"SLURM_TASK_PID", b"SLURM_STEP_ID"
CONTAINER = b"REDBOX_CONTAINER"
"""Set by the runner for Apptainer's starter: the name of the pod's container."""
STARTERS = ("starter", "starter-suid")
DEEPEST = 4
LOADER_VARIABLES = (b"LD_", b"GCONV_PATH", b"LOCPATH", b"NLSPATH", b"GLIBC_TUNABLES")
Environment = Dict[bytes, bytes]


class NoPlace(Exception):
    """The session cannot run where it was asked for: one sentence."""


class Place(NamedTuple):
    """An environment, a folder, and the command that enters the container, if any."""

    environment: Environment
    folder: bytes
    enter: List[bytes]
    notice: bytes = b""


class JobProcess(NamedTuple):
    """A process of the job on this node."""

    pid: int
    environment: Environment
    started: int

    @property
    def is_batch(self) -> bool:
        return self.environment.get(TASK_PID) == str(self.pid).encode() and STEP_ID not in self.environment


def find_place(job: str, container: Optional[str]) -> Place:
    """The container of this name; else the job's own container, if its script became one; else the node."""
    processes = sorted(job_processes(job), key=lambda process: process.started)
    if container is not None:
        starters = [p for p in processes if p.environment.get(CONTAINER) == container.encode()]
        return _inside_of(starters, container)
    batch = next((process for process in processes if process.is_batch), None)
    if batch is None:
        batch = next((p for p in processes if STEP_ID not in p.environment), None) or next(
            iter(processes), None
        )
    if batch is None:
        return Place(account_environment(), b"/", [])
    outside = Place(dict(batch.environment), folder_of(batch.pid), [])
    starters = [p for p in processes if program_name(p.pid) in STARTERS]
    if program_name(batch.pid) not in (*STARTERS, "srun") or not starters:
        return outside
    inside = next((pid for pid in map(find_inside, (p.pid for p in starters)) if pid is not None), None)
    if inside is None:
        return outside._replace(notice=b"redbox: the job's container cannot be entered: this is its node\r\n")
    return enter(inside)


def _inside_of(starters: List[JobProcess], container: str) -> Place:
    for starter in reversed(starters):  # the newest start first
        inside = find_inside(starter.pid)
        if inside is not None:
            return enter(inside)
    raise NoPlace(
        f"Container {container} does not run on this node, or has only begun to: retry when it runs."
    )


def job_processes(job: str) -> Iterator[JobProcess]:
    """By the id of its own step, if it is in one: an array's task has two."""
    wanted = os.environb.get(JOB_ID) or job.encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            environment = environment_of(int(name))
            if environment.get(JOB_ID) == wanted and int(name) != os.getpid():
                yield JobProcess(int(name), environment, start_of(int(name)))


def environment_of(pid: int) -> Environment:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    return {name: value for name, equals, value in (entry.partition(b"=") for entry in entries) if equals}


def start_of(pid: int) -> int:
    """In clock ticks since the node's boot: field 22, of which the second may have blanks."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def folder_of(pid: int) -> bytes:
    try:
        folder = os.readlink(b"/proc/%d/cwd" % pid)
    except OSError:
        return b"/"
    return folder if os.path.isdir(folder) else b"/"


def program_name(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def namespace_of(pid: str, kind: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return ""


def child_pids(pid: int) -> List[int]:
    found: List[int] = []
    folder = f"/proc/{pid}/task"
    try:
        for thread in os.listdir(folder):
            with open(f"{folder}/{thread}/children") as file:
                found += [int(child) for child in file.read().split()]
    except OSError:
        pass
    return found


def find_inside(starter: int) -> Optional[int]:
    """The first program below Apptainer's starter in a user and mount namespace of its own."""
    generation = [starter]
    for _ in range(DEEPEST):
        generation = [child for pid in generation for child in child_pids(pid)]
        for pid in generation:
            user, mount = namespace_of(str(pid), "user"), namespace_of(str(pid), "mnt")
            is_apart = user and mount and user != namespace_of("self", "user")
            if is_apart and mount != namespace_of("self", "mnt") and program_name(pid) not in STARTERS:
                return pid
    return None


def enter(pid: int) -> Place:
    """Enter by nsenter. Variables by which it would load a container's code outside of it are set inside."""
    nsenter, setpriv = shutil.which("nsenter"), shutil.which("setpriv")
    if nsenter is None:
        raise NoPlace("The node has no nsenter (util-linux), so that no container can be entered.")
    values = environment_of(pid)
    kept = {name: value for name, value in values.items() if not name.startswith(LOADER_VARIABLES)}
    argv = [setpriv, "--no-new-privs"] if setpriv else []
    argv += [nsenter, "-t", str(pid), "-U", "--preserve-credentials", "-m", "-r", "-w"]
    for kind, option in (("pid", "-p"), ("ipc", "-i")):
        if namespace_of(str(pid), kind) != namespace_of("self", kind):
            argv.append(option)
    command = [os.fsencode(word) for word in [*argv, "--"]]
    if len(kept) < len(values):
        command += [b"env", *(name + b"=" + value for name, value in values.items() if name not in kept)]
    return Place(kept, b"/", command)


def account_environment() -> Environment:
    """Of the step: on a node where the job has no process of its own."""
    return {name: value for name, value in os.environb.items() if not name.startswith(b"REDBOX_")}
