"""Programs that the runner starts: itself again, with the name of a file.

Through srun, `step FILE` runs one container in a step with a memory limit of its own; `task FILE` one rank of
an MPI program, on any of the job's nodes. `join FILE` runs a container among the processes of another one.
What they run is in the file: srun's environment and argv travel through Slurm.
"""

import glob
import json
import marshal
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import CodeType
from typing import IO, Any, Dict, List, Mapping, Optional

from redbox.node.program.attachments import SCRATCH_PREFIX
from redbox.node.program.joined_namespaces import (
    give_up_privileges,
    join_namespace,
    mount_proc,
    open_namespaces,
    replace_files,
)
from redbox.runner.program.command_lines import PASSED
from redbox.runner.program.consoles import Console
from redbox.runner.program.processes import (
    PAUSE_S,
    ContainerProcess,
    exit_code_of,
    find_container,
    oom_file,
    read_text,
    runs_program,
    send_signal,
)
from redbox.runner.program.rules import FATAL_CODE
from redbox.runner.program.volumes import Scratch, make_on_this_node, remove_tree

# A shell remains in the step, not Python: it takes a tenth of the memory. The container is not its background
# job, since a shell has those ignore SIGINT. By --signal=USR1@300 Slurm signals it, too.
WRAPPER = """
trap : TERM INT HUP USR1 USR2
echo $$ >"$0.pid"
counter=$1; shift
kills() { k=0; [ -z "$counter" ] || while read -r n v; do [ "$n" != oom_kill ] || k=$v; done <"$counter"; }
kills; before=$k
exec 3>&2 2>/dev/null
"$@" 2>&3 3>&-
code=$?
kills
echo "$code $((k - before))" >"$0.part" && mv -f "$0.part" "$0.end"
exit "$code"
"""
# What MPI's ranks and Slurm's plugins say to each rank.
RANK_VARIABLES = ("PMI", "PMIX", "SLURM_", "OMPI_", "PRTE_", "UCX_", "CUDA_VISIBLE", "ROCR_VISIBLE")
SYSTEM_TMPDIR = "/tmp"  # noqa: S108 # PMIx's own default
KEYS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
OVERLAY = "{overlay}"
"""In a task's command line: its own folder on its own node."""


def write_start(path: str, argv: List[str], environment: Dict[str, str], **more: object) -> None:
    document = dict(more, argv=argv, environment=environment)
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        json.dump(document, file)


def read_start(path: str) -> Dict[str, Any]:
    with open(path) as file:
        document: Dict[str, Any] = json.load(file)
    return document


def open_log(path: str, flags: int) -> int:
    """A container's log: no link is followed, and no FIFO waited for."""
    log = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    os.set_blocking(log, True)
    return log


def run_step(path: str) -> None:
    """Become the step's shell; the container's files are its log or its console, and not srun's."""
    start = read_start(path)
    os.unlink(path)
    if start.get("files"):
        for number, (file, mode) in enumerate(zip(start["files"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY))):
            os.dup2(os.open(file, mode | os.O_NOCTTY), number)
    else:
        log = open_log(start["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
    argv = ["/bin/sh", "-c", WRAPPER, path, oom_file() or "", *start["argv"]]
    os.execve(argv[0], argv, start["environment"])  # noqa: S606 # the shell is the step's own


def run_task(path: str) -> int:
    """Run one rank, in an overlay of its own, with the variables by which ranks find each other."""
    start = read_start(path)
    environment = dict(start["environment"])
    for name, value in os.environ.items():
        if name.startswith(RANK_VARIABLES):
            environment.setdefault(PASSED[0] + name, value)
            environment.setdefault(name, value)
    for volume in start["folders"]:
        make_on_this_node(volume)
    scratch = Scratch(start["scratch"], "rank-" + os.environ.get("SLURM_JOB_ID", ""))
    folder = scratch.path
    try:
        argv = [folder if word == OVERLAY else word for word in start["argv"]]
        image = argv.index(start["image"])
        for shared in find_rank_folders(os.environ):
            argv[image:image] = ["--bind", shared]
        process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            signal.signal(number, lambda received, _frame: process.send_signal(received))
        return exit_code_of(process.wait())
    finally:
        scratch.remove()


class JoinedProcess(ContainerProcess):
    """A container among the processes of another one: the child of the helper that has entered both."""

    def __init__(
        self,
        argv: List[str],
        environment: Dict[str, str],
        output: IO[bytes],
        path: str,
        console: Optional[Console],
    ) -> None:
        self._path = path
        super().__init__(argv, environment, output, "/", console)

    def _find(self) -> Optional[int]:
        text = read_text(self._path + ".pid").strip()
        return int(text) if text.isdigit() else None


def run_joined(path: str) -> int:
    """Have Apptainer make the container's files, enter them as a process of the other container, and wait."""
    start = read_start(path)
    os.unlink(path)
    for number in KEYS:
        signal.signal(number, signal.SIG_IGN)  # those of the container's terminal
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(exit_code_of(-signal.SIGTERM)))
    try:
        opened = open_namespaces(start["target"])
        join_namespace("user", opened)
        if start["files"]:
            replace_files(start["files"])
    except OSError as error:
        return say_fatal("container {} cannot be entered: {}".format(start["targetName"], error.strerror))
    waiting = subprocess.Popen(
        start["argv"], env=start["environment"], stdin=subprocess.DEVNULL, start_new_session=True
    )
    inside: Optional[int] = None
    try:
        inside = find_waiting(waiting)
        if inside is None:
            return exit_code_of(waiting.wait())  # Apptainer has said why
        return run_in_both(start, opened, inside, path + ".pid")
    finally:
        inside = inside or find_container(waiting.pid)
        send_signal(inside or waiting.pid, signal.SIGKILL if inside else signal.SIGTERM)
        waiting.wait()  # the starter cleans up


def find_waiting(starter: "subprocess.Popen[bytes]") -> Optional[int]:
    """The container that has the files, once it is complete; None if there is none."""
    while starter.poll() is None:
        found = find_container(starter.pid)
        if found is not None and runs_program(found):
            return found
        time.sleep(PAUSE_S)
    return None


def run_in_both(start: Dict[str, Any], opened: Dict[str, int], inside: int, note: str) -> int:
    """Run the program with the files of one container, among the processes of the other."""
    opened = dict(opened, mnt=os.open("/proc/{}/ns/mnt".format(inside), os.O_RDONLY | os.O_CLOEXEC))
    join_namespace("pid", opened)  # which counts for children
    begun, failure = os.pipe()
    child = os.fork()
    if child == 0:
        execute_joined(start, opened, failure)
    os.close(failure)
    with open(begun, "rb") as pipe:
        sentence = pipe.read().decode("utf-8", "replace")  # ends when the program runs
    if sentence:
        os.waitpid(child, 0)
        return say_fatal(sentence)
    with open(note + ".part", "w") as file:
        file.write(str(child))
    os.rename(note + ".part", note)
    status = os.waitpid(child, 0)[1]
    end_left_behind(opened["mnt"], inside)
    os.close(opened["mnt"])  # else the files' server waits a second for their last user
    return exit_code_of(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def execute_joined(start: Dict[str, Any], opened: Dict[str, int], failure: int) -> None:
    """Become the program; what fails is written to the pipe, which the program does not have."""
    try:
        for name in ("ipc", "uts", "mnt"):
            join_namespace(name, opened)
        mount_proc()
        give_up_privileges()
        if os.isatty(0):  # as a shell finds it that is the first of its terminal
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            os.setpgid(0, 0)
            os.tcsetpgrp(0, os.getpgrp())
        for number in (*KEYS, signal.SIGTTOU, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.chdir(start["cwd"])
        except OSError:
            os.chdir("/")
        argv = start["program"]
        os.execvpe(argv[0], argv, start["variables"])  # noqa: S606 # no shell is wanted
    except OSError as error:
        os.write(failure, "{}: {}".format(start["program"][0], error.strerror).encode())
    finally:
        os._exit(FATAL_CODE)


def end_left_behind(files: int, waiting: int) -> None:
    """End what the program has left: its files go with it, and nothing else would end it before the pod."""
    space = os.readlink("/proc/self/fd/{}".format(files))
    own = os.readlink("/proc/{}/ns/pid".format(waiting))
    for name in os.listdir("/proc"):
        with suppress(OSError):
            folder = "/proc/{}/ns".format(int(name) if name.isdigit() else "self")
            if os.readlink(folder + "/mnt") == space and os.readlink(folder + "/pid") != own:
                send_signal(int(name), signal.SIGKILL)


def say_fatal(sentence: str) -> int:
    """As Apptainer says why a container does not start."""
    sys.stderr.write("FATAL:   {}\n".format(sentence))
    return FATAL_CODE


def find_rank_folders(environment: Mapping[str, str]) -> List[str]:
    """The folders that Slurm's PMIx plugin has made for the ranks of a node: sockets, and shared memory.

    The latter is in no variable, but for its parent.
    """
    sockets = environment.get("PMIX_SERVER_TMPDIR")
    step = "_{}.{}".format(environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_STEP_ID", ""))
    parent = environment.get("PMIX_SYSTEM_TMPDIR") or SYSTEM_TMPDIR
    made = glob.glob(os.path.join(glob.escape(parent), "spmix_appdir_*"))
    own = [path for path in made if path.endswith(step) and os.lstat(path).st_uid == os.getuid()]
    return [*([sockets] if sockets else []), *own]


def cleanup_command(nodes: str, path: str) -> List[str]:
    """The step that removes a folder on each node of the job."""
    options = ["--overlap", "-N" + nodes, "-n" + nodes, "--ntasks-per-node=1", "--cpu-bind=none"]
    return ["srun", "-Q", *options, "--input=none", *program_command("cleanup", path, program_source())]


def run_cleanup(path: str) -> int:
    """Remove what a pod had on this node; only a folder of this user, of the kind that the runner makes."""
    with suppress(FileNotFoundError):
        if os.path.basename(path).startswith(SCRATCH_PREFIX) and os.lstat(path).st_uid == os.getuid():
            remove_tree(path)
    return 0


def program_command(verb: str, path: str, program: Optional[str] = None) -> List[str]:
    """This program's own command line, for a step."""
    return [sys.executable, "-IS", program or os.path.abspath(sys.argv[0]), verb, path]


def program_source() -> str:
    """This program's source, which other nodes run: their Python may not be this one."""
    program = os.path.abspath(sys.argv[0])
    suffix = compiled_suffix()
    return program[: -len(suffix)] + ".py" if program.endswith(suffix) else program


def compiled_suffix() -> str:
    """The end of a compiled program's name: other versions of Python cannot read it."""
    return ".{}-{:x}.pyc".format(sys.implementation.cache_tag, sys.hexversion)


def keep_compiled(code: CodeType) -> None:
    """Leave the compiled form of this program beside its source, for the batch scripts that come after."""
    from importlib.util import MAGIC_NUMBER  # noqa: PLC0415 # only the first runner of a user needs it

    source, ending = os.path.splitext(os.path.abspath(sys.argv[0]))
    path = source + compiled_suffix()
    if ending != ".py" or os.path.exists(path):
        return
    fields = 4 if sys.version_info >= (3, 7) else 3
    content = MAGIC_NUMBER + bytes(4 * (fields - 1)) + marshal.dumps(code)
    part = "{}.{}.{}".format(path, os.uname()[1], os.getpid())
    with suppress(OSError):
        try:
            with open(part, "wb", opener=lambda name, flags: os.open(name, flags | os.O_EXCL, 0o600)) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(part, path)
        except OSError:
            os.unlink(part)
            raise
