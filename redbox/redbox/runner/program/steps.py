"""Programs that the runner starts through srun: itself again, with the name of a file.

`step FILE` runs one container in a step with a memory limit of its own; `task FILE` one rank of an MPI
program, on any of the job's nodes. What they run is in the file: srun's environment and argv travel through
Slurm.
"""

import glob
import json
import marshal
import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import CodeType
from typing import Any, Dict, List, Mapping, Optional

from redbox.node.program.attachments import SCRATCH_PREFIX
from redbox.runner.program.command_lines import PASSED
from redbox.runner.program.processes import exit_code_of, oom_file
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
