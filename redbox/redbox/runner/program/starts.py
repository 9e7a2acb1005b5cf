"""One start of a container: its variables, mounts, command line and files, and how it is launched.

Directly, as a child of the runner; in a step of Slurm of its own, where several containers run beside each
other and this one has a memory limit; as the tasks of an MPI program on all nodes of the job; or, for
`kubectl debug --target`, among the processes of another container.
"""

import os
import threading
from contextlib import contextmanager, suppress
from typing import Callable, Dict, Iterator, List, Optional

from redbox.node.program.attachments import ATTACH_FOLDER
from redbox.node.program.joined_namespaces import write_waiting
from redbox.node.program.user_namespaces import (
    NO_MAP,
    account_files,
    find_unshare,
    group_file,
    passwd_file,
    with_user_inside,
)
from redbox.runner.program.command_lines import (
    CONTAINER_NAME,
    PASSED,
    STEP_VARIABLES,
    container_command,
    job_has_memory,
    plain_variables,
    runtime_environment,
    seccomp_profile,
    step_command,
    step_environment,
)
from redbox.runner.program.consoles import Console
from redbox.runner.program.handlers import HandlerTarget
from redbox.runner.program.images import Image, ImageStore
from redbox.runner.program.processes import (
    ContainerProcess,
    StepProcess,
    TasksProcess,
)
from redbox.runner.program.reports import StatusReport
from redbox.runner.program.rules import (
    ConfigRefused,
    Document,
    StartFailed,
    absolute,
    build_argv,
    container_environment,
    find_home,
    message_path,
    pod_environment,
)
from redbox.runner.program.steps import (
    OVERLAY,
    JoinedProcess,
    open_log,
    program_command,
    program_source,
    write_start,
)
from redbox.runner.program.volumes import Mount, Scratch, VolumeSet, make_below, write_once

LARGEST_POD_MESSAGE = 12 * 1024
LARGEST_MESSAGE = 4096
DEFAULT_SCRATCH = "/tmp"  # noqa: S108 # a folder of the job's own is made there
DEVICES = "/dev/"
TERMINAL = "xterm"
HOSTS_HEADER = "# Kubernetes-managed hosts file.\n"  # as kubelets begin it
OF_HOST_NETWORK = "# Kubernetes-managed hosts file (host network).\n"
TERMINAL_SESSION = ("setsid", "-c")  # of util-linux, as nsenter: the terminal becomes that of the container
WAITING_PATH = "/.redbox-waiting"
"""In a container that has only its files used."""


class PodContext:
    """What the containers of a pod share."""

    def __init__(self, pod: Document, folder: str, node_name: str, address: str) -> None:
        self.pod = pod
        self.folder = folder
        self.parent = os.getppid()
        self.logs: str = pod["paths"]["logs"]
        self.node_name = node_name
        self.address = address
        self.node_values = {
            "podIP": address,
            "podIPs": address,
            "hostIP": address,
            "hostIPs": address,
            "nodeName": node_name,
        }
        self.hostname: str = pod.get("hostname") or ""
        self.restart_policy: str = pod.get("restartPolicy") or "Always"
        self.grace_s = float(pod.get("terminationGraceS", 30))
        self.full_name = "{}_{}({})".format(pod["name"], pod["namespace"], pod["uid"])
        self.mpi: Optional[str] = pod.get("mpi")
        self.host_environment: Dict[str, str] = dict(os.environ)
        self.runtime = ""
        self.stopping = threading.Event()
        self.wake: Callable[[], None] = lambda: None
        self.fail: Callable[[str, str], None] = lambda _reason, _message: None
        """End the whole pod, with a reason."""
        self.targets: Dict[str, HandlerTarget] = {}
        """The newest start of each container."""
        self.report: StatusReport
        self.images: ImageStore
        self.volumes: VolumeSet
        self.scratch: Scratch

    @property
    def all_specs(self) -> List[Document]:
        return [*(self.pod.get("initContainers") or []), *self.pod["containers"]]

    @property
    def message_limit(self) -> int:
        return min(LARGEST_MESSAGE, LARGEST_POD_MESSAGE // len(self.all_specs))

    @property
    def runs_side_by_side(self) -> bool:
        """Whether several containers run at the same time, so that one's memory may be another's end."""
        sidecars = [spec for spec in self.pod.get("initContainers") or [] if spec.get("alwaysRestarts")]
        return len(sidecars) + len(self.pod["containers"]) > 1

    @property
    def small_files(self) -> str:
        """Where the files of a start are: an MPI program's nodes share only the private folder."""
        path = os.path.join(self.folder, "run") if self.mpi else os.path.join(self.scratch.path, "run")
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path


class ContainerStart:
    """All that one start needs."""

    def __init__(
        self, argv: List[str], environment: Dict[str, str], log: str, cwd: str, overlay: Optional[str]
    ) -> None:
        self.argv = argv
        self.environment = environment
        self.log = log
        self.cwd = cwd
        self.overlay = overlay
        self.home = "/"
        self.plain: Dict[str, str] = {}
        """Variables whose names no shell takes."""
        self.message_file = ""
        self.open_console: Callable[[], Optional[Console]] = lambda: None
        self.launch: Callable[[], ContainerProcess] = lambda: self.launch_child(self.argv, self.environment)

    def launch_child(self, argv: List[str], environment: Dict[str, str]) -> ContainerProcess:
        with self.console() as console, open(self.log, "ab", opener=open_log) as output:
            return ContainerProcess(argv, environment, output, "/", console)

    @property
    def variables(self) -> Dict[str, str]:
        """Those that the container's program is given."""
        start = len(PASSED[0])
        passed = {
            name[start:]: value for name, value in self.environment.items() if name.startswith(PASSED[0])
        }
        return dict(passed, HOME=self.home, **self.plain)

    @contextmanager
    def console(self) -> Iterator[Optional[Console]]:
        """Its console, if it has one, which is closed where it cannot be started."""
        console = self.open_console()
        try:
            yield console
        except OSError:
            if console is not None:
                console.end()
                console.close()
            raise


class StartBuilder:
    """Builds the starts of one container."""

    def __init__(self, context: PodContext, spec: Document, kind: str) -> None:
        self._context = context
        self._spec = spec
        self._mpi = context.mpi if kind == "main" else None

    def build(self, image: Image, number: int) -> ContainerStart:
        """StartFailed for what never works, ConfigRefused for what may work later, OSError of the node's."""
        context, spec = self._context, self._spec
        own = pod_environment(spec.get("env") or [], context.node_values)
        hostname = context.hostname or context.node_name.partition(".")[0]
        values = container_environment(image.config, own, hostname)
        argv, target = build_argv(spec, image.config, own), self._find_target()
        mounts = context.volumes.mounts(spec, own)
        cwd = absolute(spec.get("workingDir") or image.config.working_dir)
        message_file = self._message_file(number)
        mounts += self._own_mounts(spec, message_file, mounts)
        mounts += self._working_dir_mount(cwd, image, mounts)
        mounts += [self._waiting_mount()] if target is not None else []
        overlay = None if spec.get("readOnlyRoot") else self._overlay(number)
        home = find_home(values, image.config.user)
        files, is_filtered = context.small_files, bool(spec.get("defaultSeccomp"))
        seccomp = write_once(files, "seccomp.json", seccomp_profile()) if is_filtered else None
        command = container_command(
            context.runtime,
            image.path,
            argv if target is None else [WAITING_PATH],
            overlay=overlay,
            cwd=cwd,
            home=home,
            hostname=context.hostname,
            mounts=mounts,
            gpus=context.pod.get("gpus"),
            isolated=not self._mpi,
            clean=not plain_variables(values),
            seccomp=seccomp,
        )
        if target is None:
            command = self._with_user_inside(command, home)
        values[CONTAINER_NAME] = spec["name"]
        if spec.get("tty"):
            values.setdefault("TERM", TERMINAL)
            command = [*TERMINAL_SESSION, *command] if target is None else command
        environment = runtime_environment(context.host_environment, values, context.pod.get("gpus"))
        log = os.path.join(context.logs, "{}-{}.log".format(spec["name"], number))
        start = ContainerStart(command, environment, log, cwd, overlay)
        start.home, start.message_file = home, message_file
        start.plain = plain_variables(values)
        if spec.get("stdin") or spec.get("tty"):
            start.open_console = lambda: self._open_console(start.log)
        self._choose_launch(start, image, number)
        if target is not None:
            start.launch = lambda: self._launch_joined(start, target, argv, number)
        return start

    def _find_target(self) -> Optional[HandlerTarget]:
        """The container among whose processes this one runs; none where it runs by itself."""
        name = self._spec.get("target")
        if not name:
            return None
        target = self._context.targets.get(name)
        if target is None or target.pid is None or target.ended():
            raise ConfigRefused("unable to find target container {}: it does not run now".format(name))
        return target

    def _waiting_mount(self) -> Mount:
        path = os.path.join(self._context.small_files, "waiting-" + self._spec["name"])
        if not write_waiting(path, os.uname().machine):
            message = "on node {} no container can run among the processes of another one: its CPU is {}"
            raise StartFailed(message.format(self._context.node_name, os.uname().machine))
        return Mount(path, WAITING_PATH, read_only=True)

    def _with_user_inside(self, command: List[str], home: str) -> List[str]:
        spec, folder = self._spec, self._context.small_files
        user, group = spec.get("runAsUser"), spec.get("runAsGroup")
        if user is None and group is None:
            return command
        unshare = find_unshare()
        if unshare is None:
            raise StartFailed(NO_MAP.format(self._context.node_name))
        ids = (os.getuid() if user is None else user, os.getgid() if group is None else group)
        files = account_files(folder, spec["name"])
        write_once(folder, os.path.basename(files["/etc/passwd"]), passwd_file(ids, home))
        write_once(folder, os.path.basename(files["/etc/group"]), group_file(ids[1]))
        return with_user_inside(unshare, ids, files, command)

    def _choose_launch(self, start: ContainerStart, image: Image, number: int) -> None:
        context, spec = self._context, self._spec
        if self._mpi:
            start.launch = lambda: self._launch_tasks(start, image, number)
        elif (
            spec.get("memoryLimit")
            and context.runs_side_by_side
            and not context.mpi  # the ranks' step has all of the job's memory
            and "SLURM_JOB_ID" in os.environ
            and job_has_memory(spec["memoryLimit"], context.host_environment)
        ):
            start.launch = lambda: self._launch_step(start, number)

    def _open_console(self, path: str) -> Console:
        spec = self._spec
        log = open_log(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        folder = self._context.scratch.folder(ATTACH_FOLDER)
        kind = {"stdin": spec.get("stdin"), "once": spec.get("stdinOnce"), "tty": spec.get("tty")}
        try:
            return Console(folder, spec["name"], log, **{name: bool(value) for name, value in kind.items()})
        except OSError:
            os.close(log)
            raise

    def _launch_step(self, start: ContainerStart, number: int) -> ContainerProcess:
        context, spec = self._context, self._spec
        path = os.path.join(context.small_files, "{}-{}".format(spec["name"], number))
        argv = step_command(
            program_command("step", path), context.node_name, spec["name"], spec["memoryLimit"]
        )
        environment = step_environment(context.host_environment)
        with start.console() as console, open(path + ".srun", "ab") as output:
            files = console.child_paths() if console is not None else None
            write_start(path, start.argv, start.environment, log=start.log, files=files)
            return StepProcess(argv, environment, output, path, console)

    def _launch_joined(
        self, start: ContainerStart, target: HandlerTarget, argv: List[str], number: int
    ) -> ContainerProcess:
        """Apptainer's own environment has none of the container's: only one process is to be found by it."""
        context, spec = self._context, self._spec
        path = os.path.join(context.small_files, "{}-{}".format(spec["name"], number))
        accounts = account_files(context.small_files, spec["target"])
        write_start(
            path,
            start.argv,
            {name: value for name, value in start.environment.items() if not name.startswith(PASSED)},
            target=target.pid,
            targetName=spec["target"],
            files={file: source for file, source in accounts.items() if os.path.exists(source)},
            program=argv,
            variables=start.variables,
            cwd=start.cwd,
        )
        command = program_command("join", path)
        if spec.get("tty"):
            command = [*TERMINAL_SESSION, *command]
        with start.console() as console, open(start.log, "ab", opener=open_log) as output:
            return JoinedProcess(command, context.host_environment, output, path, console)

    def _launch_tasks(self, start: ContainerStart, image: Image, number: int) -> ContainerProcess:
        context = self._context
        path = os.path.join(context.small_files, "{}-{}".format(self._spec["name"], number))
        argv = [OVERLAY if word == start.overlay else word for word in start.argv]
        folders = [volume.path for volume in context.volumes.by_name.values() if volume.is_empty_dir]
        write_start(
            path,
            argv,
            start.environment,
            image=image.path,
            scratch=context.pod.get("scratch") or DEFAULT_SCRATCH,
            folders=folders,
        )
        environment = {
            name: value for name, value in context.host_environment.items() if name not in STEP_VARIABLES
        }
        launcher = ["srun", "--mpi=" + str(self._mpi)]
        cpus = context.host_environment.get("SLURM_CPUS_PER_TASK")
        launcher += ["--cpus-per-task=" + cpus] if cpus else []  # srun does not inherit it from sbatch
        command = [*launcher, *program_command("task", path, program_source())]
        with open(start.log, "ab", opener=open_log) as output:
            return TasksProcess(command, environment, output, "/")

    def _overlay(self, number: int) -> str:
        name = "{}-{}".format(self._spec["name"], number)
        return self._context.scratch.folder("root", name)

    def _message_file(self, number: int) -> str:
        if not message_path(self._spec) or message_path(self._spec).startswith(DEVICES):
            return ""
        path = os.path.join(self._context.small_files, "{}-{}.message".format(self._spec["name"], number))
        with open(path, "wb"):
            pass
        return path

    def _own_mounts(self, spec: Document, message_file: str, mounts: List[Mount]) -> List[Mount]:
        """The hosts file, the resolver's, and the file for the termination message."""
        taken = {mount.destination for mount in mounts}
        context = self._context
        files = {
            "/etc/hosts": write_once(context.small_files, "hosts", hosts_file(context)),
            "/etc/resolv.conf": write_once(
                context.small_files, "resolv.conf", context.pod.get("resolvConf") or ""
            ),
            message_path(spec): message_file,
        }
        return [
            Mount(source, destination, read_only=False)
            for destination, source in files.items()
            if source and destination not in taken
        ]

    def _working_dir_mount(self, cwd: str, image: Image, mounts: List[Mount]) -> List[Mount]:
        """Have a working directory made that neither the image nor a volume brings.

        Apptainer makes the points of its mounts, wherever links lead: a file in the folder has it made.
        """
        if cwd in ("/", absolute(image.config.working_dir)):
            return []
        for mount in sorted(mounts, key=lambda mount: -len(mount.destination)):
            if (cwd + "/").startswith(mount.destination + "/"):
                make_below(mount.source, os.path.relpath(cwd, mount.destination))
                return []
        empty = write_once(self._context.small_files, "empty", "\n")
        return [Mount(empty, os.path.join(cwd, ".redbox"), read_only=True)]


def hosts_file(context: PodContext, path: str = "/etc/hosts") -> str:
    """The node's own, in whatever encoding, with the pod's name and the lines of hostAliases."""
    lines = HOSTS_HEADER if context.hostname else OF_HOST_NETWORK
    with suppress(OSError), open(path, encoding="utf-8", errors="surrogateescape") as file:
        lines += file.read().rstrip("\n") + "\n"
    if context.hostname:
        lines += "{}\t{}\n".format(context.address, context.hostname)
    return lines + (context.pod.get("hostsFile") or "")
