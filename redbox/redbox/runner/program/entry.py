"""The runner's main program: reads the pod, prepares the node for it, runs it, and leaves nothing behind."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import closing, suppress
from types import CodeType
from typing import Dict, List, Optional

from redbox.node.program.atomic_files import OF_POD, UpdateFile, take_updates
from redbox.node.program.listeners import free_port
from redbox.node.program.user_namespaces import find_namespace_bar
from redbox.runner.program.command_lines import step_environment
from redbox.runner.program.handlers import find_node_address
from redbox.runner.program.images import ImageStore
from redbox.runner.program.pods import DELETED, PASSED_SIGNALS, STOP_SIGNALS, PodRunner
from redbox.runner.program.processes import TimedOut, run_bounded
from redbox.runner.program.reports import ReportFile, StatusReport
from redbox.runner.program.rules import Document, in_letters_of_node, replace_ports, shown_ports
from redbox.runner.program.starts import DEFAULT_SCRATCH, PodContext
from redbox.runner.program.steps import (
    cleanup_command,
    keep_compiled,
    run_cleanup,
    run_joined,
    run_step,
    run_task,
)
from redbox.runner.program.volumes import Scratch, ScratchFailed, VolumeSet

UNPREPARED = 70
FOLLOWING = ("startupProbe", "livenessProbe", "readinessProbe", "postStart")
"""What changes the state of a container that has started."""
CLEANUP_S = 20
MOUNTER, OTHER_MOUNTER = "squashfuse_ll", "squashfuse"
OWNER_OPTION = "-o uid="
# Apptainer reads the help to find out whether it can name an owner; squashfuse's help is silent about it.
STAND_IN = """#!/bin/sh
[ $# -gt 0 ] || echo "    {}N"
exec {} "$@"
"""
HELP_S = 5.0
CACHE_S = 10


class SetupFailed(Exception):
    """The node cannot run containers."""


class DeletedEarly(Exception):
    """A signal has come before anything was started: the pod is being deleted."""


class UpdateApplier:
    """Applies what red-box has written into the private folder since the pod's submit."""

    def __init__(self, context: PodContext) -> None:
        self._context = context

    def apply(self) -> Optional[bool]:
        """False: the node cannot apply all of them now; None: there were none."""
        try:
            paths = take_updates(self._context.folder)
        except OSError:  # a file server that is away
            return False
        for path in paths:
            try:
                with closing(UpdateFile(path)) as update:
                    self._apply(update)
            except OSError as error:
                self._warn(path, error.strerror or str(error))
                return False
            except (ValueError, LookupError, TypeError) as error:
                self._warn(path, str(error))
            with suppress(OSError):
                os.unlink(path)
        return bool(paths) or None

    def _apply(self, update: UpdateFile) -> None:
        header = update.header = in_letters_of_node(update.header)
        if "volume" in header:
            self._context.volumes.update(update)
            return
        deadline, before = header.get("activeDeadlineS"), self._context.pod.get("activeDeadlineS")
        if deadline and (not before or deadline < before):
            self._context.pod["activeDeadlineS"] = int(deadline)
        self._context.report.change_pod(inputs=str(header["inputs"]))

    def _warn(self, path: str, why: str) -> None:
        name = os.path.basename(path).split(".")[1]
        if name == OF_POD:
            message = "A change of the pod could not be read on node {}: {}".format(
                self._context.node_name, why
            )
        else:
            message = (
                'MountVolume.SetUp failed for volume "{}" : its files stay as they were, and could not be '
                "changed on node {}: {}".format(name, self._context.node_name, why)
            )
        self._context.report.event("FailedMount", message, warning=True)


def raise_deleted(_number: int, _frame: object) -> None:
    raise DeletedEarly


def read_pod(folder: str) -> Document:
    """Read the pod and remove its file, in which secrets are: it is never run again."""
    path = os.path.join(folder, "pod.json")
    with open(path, encoding="utf-8") as file:
        pod: Document = in_letters_of_node(json.load(file))
    os.unlink(path)
    return pod


def container_kinds(pod: Document) -> List[Document]:
    inits = [
        {"name": spec["name"], "kind": "sidecar" if spec.get("alwaysRestarts") else "init"}
        for spec in pod.get("initContainers") or []
    ]
    return [*inits, *({"name": spec["name"], "kind": "main"} for spec in pod["containers"])]


def settles(pod: Document) -> bool:
    """Whether nothing but its end follows the start of its one main container."""
    specs = [*(pod.get("initContainers") or []), *pod["containers"]]
    is_followed = any(spec.get(name) for spec in specs for name in FOLLOWING)
    has_sidecars = any(spec.get("alwaysRestarts") for spec in specs)
    return (
        len(pod["containers"]) == 1
        and pod.get("restartPolicy") == "Never"
        and not (is_followed or has_sidecars)
    )


def prepare(context: PodContext) -> None:
    """Find Apptainer, and make scratch and volumes; one sentence if the node cannot run the pod."""
    pod = context.pod
    context.host_environment = dict(os.environ)
    runtime = find_runtime(context.host_environment)
    if runtime is None:
        raise SetupFailed(
            "Neither apptainer nor singularity is in PATH on {}: {}".format(
                context.node_name, context.host_environment.get("PATH", "")
            )
        )
    context.runtime = runtime
    bar = find_namespace_bar()
    if bar is not None and os.getuid() != 0:
        raise SetupFailed(
            "Pods need user namespaces, which node {} refuses to its users: its administrator allows them by "
            "sysctl {}.".format(context.node_name, bar)
        )
    scratch = pod.get("scratch") or DEFAULT_SCRATCH
    context.scratch = Scratch(scratch, os.environ.get("SLURM_JOB_ID", str(os.getpid())))
    context.host_environment["PATH"] = search_path(
        context.host_environment, os.path.join(context.small_files, "bin")
    )
    try:
        shared = context.small_files if context.mpi else None
        context.volumes = VolumeSet(pod.get("volumes") or [], context.folder, context.scratch, shared)
    except OSError as error:
        raise ScratchFailed(
            "The pod's volumes could not be made in {} on node {}: {}.".format(
                scratch, context.node_name, error.strerror
            )
        ) from error
    UpdateApplier(context).apply()  # of the time that the job waited
    pull_environment = dict(context.host_environment)
    pull_environment.setdefault("APPTAINER_TMPDIR", context.scratch.folder("pull"))
    context.images = ImageStore(
        pod["paths"]["cache"],
        runtime,
        pull_environment,
        pod.get("registries") or {},
        context.stopping,
        keep_days=pod["paths"].get("keepDays") or 0,
    )


def find_runtime(environment: Dict[str, str]) -> Optional[str]:
    for name in ("apptainer", "singularity"):
        path = shutil.which(name, path=environment.get("PATH"))
        if path is not None:
            return path
    return None


def search_path(environment: Dict[str, str], folder: str) -> str:
    """The PATH by which Apptainer finds a program that mounts images with files of the user's own.

    squashfuse_ll before 0.2.0 (Debian 12 has 0.1.105) shows them as root's, whom a user namespace lacks: then
    nothing can change them through an overlay, or add to a folder of them, not even to an open /tmp.
    squashfuse of any release takes an owner, and is found under the other's name, which Apptainer prefers.
    """
    path = environment.get("PATH", os.defpath)
    mounter, other = (shutil.which(name, path=path) for name in (MOUNTER, OTHER_MOUNTER))
    if mounter is None or other is None or OWNER_OPTION in read_help(mounter, environment):
        return path
    os.makedirs(folder, mode=0o700, exist_ok=True)
    stand_in = os.path.join(folder, MOUNTER)
    with open(stand_in, "w") as file:
        file.write(STAND_IN.format(OWNER_OPTION, shlex.quote(other)))
    os.chmod(stand_in, 0o700)
    return folder + os.pathsep + path


def read_help(program: str, environment: Dict[str, str]) -> str:
    """What a program prints that gets no arguments; nothing if it does not end."""
    try:
        return run_bounded([program], environment, HELP_S, lambda: False)[1]
    except (OSError, TimedOut):
        return ""


def report_ports(context: PodContext) -> None:
    """Choose ports if the pod asks for that, and show them."""
    chosen = replace_ports(context.pod, free_port)
    if not chosen:
        return
    context.report.change_pod(ports=shown_ports(chosen))
    pairs = ["{} is {}".format(port, chosen[port]) for port in sorted(chosen)]
    context.report.event("PortsChosen", "On node {} port {}".format(context.node_name, ", ".join(pairs)))


def run_pod(folder: str) -> int:
    for number in STOP_SIGNALS:
        signal.signal(number, raise_deleted)
    for number in PASSED_SIGNALS:
        signal.signal(number, lambda _number, _frame: None)  # no program is there yet
    try:
        pod = read_pod(folder)
    except FileNotFoundError as missing:
        sys.stderr.write(
            "redbox: {} is not there: Slurm has started this job again, and a pod is not run twice\n".format(
                missing.filename
            )
        )
        return UNPREPARED
    node_name = os.environ.get("SLURMD_NODENAME") or os.uname()[1]
    address = find_node_address(os.uname()[1])
    context = PodContext(pod, folder, node_name, address)
    report_file = ReportFile(os.path.join(folder, "report.jsonl"))
    kinds = [(row["name"], row["kind"]) for row in container_kinds(pod)]
    first = {"nodeName": node_name, "hostIP": address, "inputs": pod["paths"].get("inputs", "")}
    context.report = StatusReport(kinds, first, settles=settles(pod))
    runner: Optional[PodRunner] = None
    deleted_early = False
    try:
        os.makedirs(context.logs, exist_ok=True)
        report_ports(context)
        prepare(context)
        runner = PodRunner(context, report_file, UpdateApplier(context).apply)
        return runner.run()
    except DeletedEarly:
        deleted_early = True
        return DELETED
    except (SetupFailed, ScratchFailed, OSError) as failure:
        reason = "ScratchUnavailable" if isinstance(failure, ScratchFailed) else "StartError"
        sys.stderr.write("redbox: {}\n".format(failure))
        context.report.explain(reason, str(failure))
        return UNPREPARED
    except Exception as error:
        context.report.explain("StartError", "the runner failed: {!r}".format(error))
        raise  # to the runner's own log
    finally:
        clean_up(context, folder)
        context.report.finish(stopped=deleted_early or (runner is not None and runner.stopped))
        line = context.report.take_line()
        with suppress(OSError):
            if line is not None:
                report_file.write(line)
        remove_unused_images(context)


def clean_up(context: PodContext, folder: str) -> None:
    if hasattr(context, "scratch"):
        nodes = context.host_environment.get("SLURM_JOB_NUM_NODES", "1")
        if context.mpi and nodes != "1":
            environment = step_environment(context.host_environment)
            for path in context.scratch.paths:
                with suppress(OSError, subprocess.SubprocessError):
                    command = cleanup_command(nodes, path)
                    subprocess.run(command, env=environment, timeout=CLEANUP_S, check=False)
        context.scratch.remove()
    for name in ("files", "run"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    with suppress(OSError):  # some may have come too late, or never had room
        for path in take_updates(folder):
            os.unlink(path)


def remove_unused_images(context: PodContext) -> None:
    """After the last report, and not for long: a cache may be slow."""
    if hasattr(context, "images"):
        removal = threading.Thread(target=context.images.remove_unused, daemon=True)
        removal.start()
        removal.join(CACHE_S)


def main(arguments: List[str], program: CodeType) -> int:
    verb, path = arguments if len(arguments) == len(("verb", "path")) else ("pod", arguments[0])
    if verb == "step":
        run_step(path)
    if verb == "task":
        return run_task(path)
    if verb == "join":
        return run_joined(path)
    if verb == "cleanup":
        return run_cleanup(path)
    threading.Thread(target=keep_compiled, args=(program,), daemon=True).start()  # a home may be slow
    return run_pod(os.path.abspath(path))


if __name__ == "__main__":
    code = main(sys.argv[1:], sys._getframe().f_code)  # noqa: SLF001 # the code of this program
    sys.stdout.flush()
    sys.stderr.flush()  # before Python 3.9 a file's is not written line by line
    os._exit(code)  # without joining threads, which a dead file server may block
