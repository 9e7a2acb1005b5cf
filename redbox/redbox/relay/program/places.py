"""Where a session runs: environment and folder of the job's batch script, or inside of its container.

A step has the environment of srun, not that of the job, so it is read from the job's own processes in
/proc. Only processes of this user can be read, so that nothing here has a right that the user has not.
"""

import os
from contextlib import suppress
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from redbox.node.program.attachments import SCRATCH_PREFIX
from redbox.node.program.job_processes import (
    JOB_ID,
    Environment,
    environment_of,
    has_variable_of,
    is_in_cgroup_of,
    leader_of,
    own_job,
    own_processes,
    owner_of,
    parent_of,
    stat_field,
    step_title,
)
from redbox.node.program.loader_variables import DEFAULT_FOLDERS, has_setter, loads_files
from redbox.node.program.started_containers import StartedContainer, is_note, read_started

TASK_PID, STEP_ID = b"SLURM_TASK_PID", b"SLURM_STEP_ID"
CONTAINER = b"REDBOX_CONTAINER"
"""Set by the runner in a container: its name in the pod."""
INSIDE = (b"APPTAINER_CONTAINER", b"SINGULARITY_CONTAINER")
BATCH, OWN, OTHER = "batch", "own", "other"
STARTERS = ("starter", "starter-suid")
DEEPEST = 4


class NotEnterable(Exception):
    """The session cannot run where it was asked for: one sentence."""


class Surroundings(NamedTuple):
    """An environment, a folder, and the command that enters the container, if any."""

    environment: Environment
    folder: bytes
    enter: List[bytes]
    notice: bytes


class JobProcess(NamedTuple):
    """A process of the job on this node."""

    pid: int
    step: str
    started: int

    @property
    def is_batch(self) -> bool:
        """Whether it is the job's script, or what the script became by exec."""
        environment = environment_of(self.pid)
        is_task = environment.get(TASK_PID) == str(self.pid).encode() and STEP_ID not in environment
        return is_task or (
            bool(environment)
            and self.step == BATCH
            and (step_title(parent_of(self.pid)) or "").endswith("." + BATCH)
        )

    @property
    def is_outside_of_steps(self) -> bool:
        environment = environment_of(self.pid)
        return JOB_ID in environment and STEP_ID not in environment


def find_surroundings(job: str, container: Optional[str], relay: int) -> Surroundings:
    """The container of this name; else the job's own container, if its script became one; else the node.

    No environment is read that is not needed: that of a process which waits in the kernel may wait with it.
    """
    processes = sorted(job_processes(job, relay), key=lambda process: process.started)
    starters = [process.pid for process in processes if program_name(process.pid) in STARTERS]
    if container is not None:
        for starter in reversed(starters):  # the newest start first
            inside = find_inside(starter, container)
            if inside is not None:
                return enter(inside, environment_of(inside))
        noted = find_noted(processes, starters, container)
        if noted is not None:
            return enter(noted.pid, noted.environment)
        raise NotEnterable(
            f"Container {container} does not run on this node, or has only begun to: retry when it runs."
        )
    batch = next((process for process in processes if process.is_batch), None)
    batch = batch or next((process for process in processes if process.is_outside_of_steps), None)
    batch = batch or next((process for process in processes if environment_of(process.pid)), None)
    if batch is None:
        return Surroundings(account_environment(), b"/", [], b"")
    became = program_name(batch.pid)
    environment = account_environment() if became in STARTERS else environment_of(batch.pid)
    outside = Surroundings(environment, folder_of(batch.pid), [], b"")
    if became not in (*STARTERS, "srun") or not starters:
        return outside
    inside = next((pid for pid in map(find_inside, starters) if pid is not None), None)
    if inside is None:
        return outside._replace(notice=b"redbox: the job's container cannot be entered: this is its node\r\n")
    return enter(inside, environment_of(inside))


def job_processes(job: str, relay: int) -> Iterator[JobProcess]:
    """Those of the job, without the sessions' own."""
    steps = steps_of_processes(own_job(job), relay)
    uid, own = os.getuid(), steps[relay]
    for pid, step in steps.items():
        if step not in (None, OTHER, own) and owner_of(pid) == uid:
            yield JobProcess(pid, step or "", start_of(pid))


def steps_of_processes(job: str, relay: int) -> Dict[int, Optional[str]]:
    """The step of each process of this user: "batch", "0"; "" if it is not known; OTHER or None: of no step.

    Of other users' only those above them are looked at: a node has thousands, and one that hangs holds up its
    readers. For the same reason an environment is read only where nothing else shows the job.
    """
    steps: Dict[int, Optional[str]] = {0: None, relay: own_step(job, relay)}
    for process in own_processes():
        path, pid = [], process
        while pid not in steps:
            path.append(pid)
            steps[pid] = step_of_title(step_title(pid), job)
            if steps[pid] is not None:
                break
            pid = parent_of(pid)
        step = steps[pid]
        for each in reversed(path):
            step = step_without_title(each, job) if step is None else step
            steps[each] = step
    return steps


def step_without_title(pid: int, job: str) -> Optional[str]:
    """Of a process whose slurmstepd is hidden, or not there: "" if it is the job's all the same."""
    is_inside = is_in_cgroup_of(pid, job)
    if is_inside is None:
        is_inside = has_variable_of(pid, job)
    return "" if is_inside else None


def own_step(job: str, relay: int) -> str:
    pid, title = relay, None
    while pid and title is None:
        title, pid = step_title(pid), parent_of(pid)
    step = step_of_title(title, job)
    return OWN if step in (None, OTHER) else step or OWN


def step_of_title(title: Optional[str], job: str) -> Optional[str]:
    leader, is_component = leader_of(job)
    if title is None:
        return None
    if title.startswith(leader + "."):
        return title[len(leader) + 1 :]
    return None if is_component else OTHER  # or of another component


def start_of(pid: int) -> int:
    """In clock ticks since the node's boot."""
    return stat_field(pid, 19)


def folder_of(pid: int) -> bytes:
    """Without a look at its file system, which may hang."""
    try:
        return os.readlink(b"/proc/%d/cwd" % pid)
    except OSError:
        return b"/"


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


def find_inside(starter: int, name: Optional[str] = None) -> Optional[int]:
    """The first program of the container, of this name, that Apptainer's starter runs in its own namespaces.

    Apptainer's helpers for images are in some of them too; only a container has Apptainer's variables.
    """
    generation = [starter]
    for _ in range(DEEPEST):
        generation = [child for pid in generation for child in child_pids(pid)]
        for pid in generation:
            environment = environment_of(pid)
            is_named = name is None or environment.get(CONTAINER) == name.encode()
            is_inside = any(variable in environment for variable in INSIDE) and is_apart(pid)
            if is_named and is_inside and program_name(pid) not in STARTERS:
                return pid
    return None


def is_apart(pid: int) -> bool:
    """Whether it is in a user and mount namespace of its own, which need no privilege to be entered."""
    spaces = [(namespace_of(str(pid), kind), namespace_of("self", kind)) for kind in ("user", "mnt")]
    return all(its and its != own for its, own in spaces)


def find_noted(processes: List[JobProcess], starters: List[int], name: str) -> Optional[StartedContainer]:
    """The container by its runner's note, where its program has overwritten its variables."""
    for runner, path, link in open_files(processes):
        noted = read_started(path) if is_note(link, SCRATCH_PREFIX, name) else None
        # One that was started among the processes of another container is below no starter.
        above = (*starters, runner)
        if noted is not None and is_apart(noted.pid) and any(is_below(noted.pid, each) for each in above):
            return noted
    return None


def is_below(pid: int, starter: int) -> bool:
    for _ in range(DEEPEST):
        pid = parent_of(pid)
        if pid == starter:
            return True
    return False


def open_files(processes: Iterable[JobProcess]) -> Iterator[Tuple[int, str, str]]:
    """Process, path and name of what is open outside of containers, without a look at a file system."""
    outside = namespace_of("self", "user")
    for process in processes:
        if namespace_of(str(process.pid), "user") != outside:
            continue
        files = "/proc/{}/fd".format(process.pid)
        for number in list_files(files):
            path = "{}/{}".format(files, number)
            with suppress(OSError):
                yield process.pid, path, os.readlink(path)


def list_files(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def enter(pid: int, values: Environment) -> Surroundings:
    """Enter by nsenter. Variables by which it would load a container's code outside of it are set inside."""
    nsenter, setpriv = find_tool("nsenter"), find_tool("setpriv")
    if nsenter is None:
        raise NotEnterable("The node has no nsenter (util-linux), so that no container can be entered.")
    set_inside = {
        name: value for name, value in values.items() if loads_files(os.fsdecode(name), os.fsdecode(value))
    }
    argv = [setpriv, "--no-new-privs"] if setpriv else []
    argv += [nsenter, "-t", str(pid), "-U", "--preserve-credentials", "-m", "-r", "-w"]
    for kind, option in (("pid", "-p"), ("ipc", "-i"), ("uts", "-u")):
        if namespace_of(str(pid), kind) != namespace_of("self", kind):
            argv.append(option)
    command = [os.fsencode(word) for word in [*argv, "--"]]
    if set_inside and has_setter(pid, os.fsdecode(values.get(b"PATH", os.fsencode(DEFAULT_FOLDERS)))):
        command += [b"env", *(name + b"=" + value for name, value in set_inside.items())]
    kept = {name: value for name, value in values.items() if name not in set_inside}
    return Surroundings(kept, b"/", command, b"")


def find_tool(name: str) -> Optional[str]:
    """By PATH; shutil, which does the same, takes longer to import than a session waits for most else."""
    paths = (os.path.join(os.fsdecode(folder), name) for folder in search_path(os.environb))
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def search_path(environment: Mapping[bytes, bytes]) -> List[bytes]:
    return environment.get(b"PATH", os.fsencode(os.defpath)).split(b":")


def account_environment() -> Environment:
    """Of the step: on a node where the job has no process of its own."""
    return {name: value for name, value in os.environb.items() if not name.startswith(b"REDBOX_")}
