"""Processes of containers: found in /proc, started, signalled; and whether the kernel killed one for memory.

Apptainer's starter is the child of the runner, or of a step; its child with the number 1 in a namespace of
its own is the container. SIGKILL goes to that one: a starter that is killed leaves the file server of its
image behind.
"""

import errno
import os
import re
import select
import signal
import stat
import subprocess
import threading
import time
from contextlib import suppress
from typing import IO, Callable, Dict, List, Optional, Tuple

from redbox.runner.program.consoles import Console

STARTER = "starter"
PAUSE_S, SHORT_PAUSE_S = 0.01, 0.002
DEEPEST = 4
OUTPUT_LIMIT = 10 * 1024
LARGEST_TEXT = 1024 * 1024
KILL_S = 5.0
SIGNALLED = 128
START_S = 60.0
REAL_TIME = re.compile(r"(SIGRTMIN|SIGRTMAX)([+-][0-9]{1,2})\Z")
"""Signals without a name of their own: systemd in an image ends by SIGRTMIN+3."""
OOM_SCORE = "300"
"""The kernel ends a container before the runner that reports on it."""
OOM_FILES = (("memory", "/sys/fs/cgroup/memory{}/memory.oom_control"), ("", "/sys/fs/cgroup{}/memory.events"))


class TimedOut(Exception):
    """A command has not ended within its time."""


def open_regular(path: str, folder: Optional[int] = None) -> int:
    """Open a file that a container may have put there: no link is followed, and no FIFO waited for."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = os.open(path, flags, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return file


def read_text(path: str, limit: int = LARGEST_TEXT) -> str:
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""


def read_end(path: str, limit: int, folder: Optional[int] = None) -> str:
    try:
        with open(open_regular(path, folder), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""


def child_processes(pid: int) -> List[int]:
    """The children of all threads of a process, from /proc/PID/task/TID/children."""
    folder = "/proc/{}/task".format(pid)
    try:
        threads = os.listdir(folder)
    except OSError:
        return []
    texts = [read_text("{}/{}/children".format(folder, thread)) for thread in threads]
    return [int(child) for text in texts for child in text.split()]


def status_fields(pid: int) -> Dict[str, str]:
    lines = read_text("/proc/{}/status".format(pid)).splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def find_container(starter: int) -> Optional[int]:
    """The first process of a namespace below the starter: it becomes the container's program."""
    generation = [starter]
    for _ in range(DEEPEST):
        generation = [child for pid in generation for child in child_processes(pid)]
        for pid in generation:
            if status_fields(pid).get("NSpid", "").split()[1:][-1:] == ["1"]:
                return pid
    return None


def runs_program(pid: int) -> bool:
    """Whether it is no longer Apptainer's starter."""
    try:
        return os.path.basename(os.readlink("/proc/{}/exe".format(pid))) != STARTER
    except OSError:  # a setuid Apptainer's container is not readable
        return not status_fields(pid).get("Name", STARTER).startswith(STARTER)


def open_devices(pid: int) -> Optional[int]:
    """The container's /dev, which can be read beyond its end; None as long as it still has the node's."""
    try:
        folder = os.open("/proc/{}/root/dev".format(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    if os.fstat(folder).st_dev == os.stat("/dev").st_dev:
        os.close(folder)
        return None
    return folder


def open_below(folder: int, names: List[str]) -> int:
    """A folder below this one, which is closed: no link leads out of the container."""
    for name in names:
        above = folder
        try:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        finally:
            os.close(above)
    return folder


def send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_number(name: str) -> int:
    """The signal that a pod or an image names (SIGUSR1, USR1, SIGRTMIN+3, 37), else SIGTERM."""
    members = signal.Signals.__members__
    full = name if name.startswith("SIG") else "SIG" + name
    found = REAL_TIME.match(full)
    if name.isdecimal():
        number = int(name)
    elif found:
        number = members[found.group(1)] + int(found.group(2))
    else:
        number = int(members.get(full, signal.SIGTERM))
    return number if 0 < number <= signal.SIGRTMAX else signal.SIGTERM


def oom_file() -> Optional[str]:
    """The file in which this process's cgroup counts what the kernel killed for memory."""
    groups = [line.split(":", 2) for line in read_text("/proc/self/cgroup").splitlines()]
    for controller, pattern in OOM_FILES:
        for _, controllers, path in groups:
            if controller in controllers.split(",") and os.path.exists(pattern.format(path)):
                return pattern.format(path)
    return None


def count_oom_kills(path: Optional[str]) -> int:
    words = read_text(path).split() if path else []
    pairs = dict(zip(words[::2], words[1::2]))
    return int(pairs.get("oom_kill", "0"))


def exit_code_of(returncode: int) -> int:
    return SIGNALLED - returncode if returncode < 0 else returncode


class DeviceMessage:
    """A termination message below /dev, which is memory of the container's own: nothing can be mounted there.

    So the folder is opened as soon as the container has it, and the file read when the container has ended.
    The message of a container that ends within milliseconds may be missed.
    """

    def __init__(self, path: str) -> None:
        *self._parents, self._name = os.path.relpath(path, "/dev").split("/")
        self._folder: Optional[int] = None

    def find(self, pid: int) -> None:
        if self._folder is None:
            devices = open_devices(pid)
            with suppress(OSError):
                self._folder = devices if devices is None else open_below(devices, self._parents)
            if self._folder is not None:
                with suppress(OSError):  # it is there already
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    os.close(os.open(self._name, flags, 0o666, dir_fd=self._folder))

    def read(self, limit: int) -> str:
        if self._folder is None:
            return ""
        try:
            return read_end(self._name, limit, self._folder)
        finally:
            os.close(self._folder)
            self._folder = None


class ContainerProcess:
    """One start of a container: from Apptainer's first process to its exit code."""

    def __init__(
        self,
        argv: List[str],
        environment: Dict[str, str],
        output: IO[bytes],
        cwd: str,
        console: Optional[Console] = None,
    ) -> None:
        """`output` is the log of a container without a console."""
        self.console = console
        self.started_at = time.time()
        self.ended = threading.Event()
        self.stopping = threading.Event()
        self.is_unhealthy = False
        """A probe has ended it."""
        self.pid: Optional[int] = None
        """Of the container itself, as this node numbers it."""
        self.message: Optional[DeviceMessage] = None
        self._oom_file = oom_file()
        self._oom_kills = count_oom_kills(self._oom_file)
        files = console.child_files if console is not None else ()
        self._process = subprocess.Popen(
            argv,
            env=environment,
            cwd=cwd,
            stdin=files[0] if files else subprocess.DEVNULL,
            stdout=files[1] if files else output,
            stderr=files[2] if files else output,
            start_new_session=console is None or not console.is_terminal,  # else setsid, with the terminal
        )
        with suppress(OSError), open("/proc/{}/oom_score_adj".format(self._process.pid), "w") as file:
            file.write(OOM_SCORE)

    def wait_started(self, limit_s: float = START_S) -> None:
        """Wait until the container's own program runs, or has ended; give up looking after the limit."""
        self._find_program(limit_s)
        if self.console is not None:
            self.console.release()

    def _find_program(self, limit_s: float) -> None:
        until = time.monotonic() + limit_s
        first: Optional[int] = None
        while self.pid is None and self._process.poll() is None and time.monotonic() < until:
            first = first or self._find()
            if first is not None and self.message is not None:
                self.message.find(first)
            if first is not None and runs_program(first):
                self.pid = first
                return
            time.sleep(PAUSE_S if first is None else SHORT_PAUSE_S)

    def has_exited(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> int:
        code = self._exit_code(exit_code_of(self._process.wait()))
        if self.console is not None:
            self.console.end()
        self.ended.set()
        return code

    def was_out_of_memory(self) -> bool:
        return count_oom_kills(self._oom_file) > self._oom_kills

    def failed_before_start(self) -> str:
        """Why there was no container at all; empty if there was one."""
        return ""

    def signal(self, number: int) -> None:
        """Signal the container; before it exists, the process that starts it."""
        if not self.ended.is_set():
            send_signal(self.pid or self._process.pid, number)

    def pass_on(self, number: int) -> None:
        """A signal that is the program's own: not for Apptainer, which it would end."""
        if self.pid is not None:
            self.signal(number)

    def kill(self) -> None:
        """End it whatever it does: first the container, whose starter then cleans up."""
        self.pid = self.pid or self._find()
        self.signal(signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.ended.wait(KILL_S):
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)

    def _find(self) -> Optional[int]:
        return find_container(self._process.pid)

    def _exit_code(self, code: int) -> int:
        return code


class StepProcess(ContainerProcess):
    """A container in a step of its own: its processes are children of the step's shell, and not of srun."""

    def __init__(
        self,
        argv: List[str],
        environment: Dict[str, str],
        output: IO[bytes],
        path: str,
        console: Optional[Console] = None,
    ) -> None:
        """`output` is srun's own; the console's files are opened by the step."""
        self._path = path
        super().__init__(argv, environment, output, "/")
        self.console = console

    def was_out_of_memory(self) -> bool:
        words = read_text(self._path + ".end").split()
        # Without an end the whole step was killed, its shell too.
        return int(words[1]) > 0 if words else "memory" in self._said()

    def failed_before_start(self) -> str:
        if self._shell_pid() is not None:
            return ""
        return self._said() or "srun has not started the container's step"

    def _said(self) -> str:
        lines = read_text(self._path + ".srun").strip().splitlines()
        return lines[-1] if lines else ""

    def _shell_pid(self) -> Optional[int]:
        text = read_text(self._path + ".pid").strip()
        return int(text) if text.isdigit() else None

    def _find(self) -> Optional[int]:
        shell = self._shell_pid()
        return find_container(shell) if shell is not None else None

    def _exit_code(self, code: int) -> int:
        words = read_text(self._path + ".end").split()
        return int(words[0]) if words else (code if code > SIGNALLED else SIGNALLED + signal.SIGKILL)


class TasksProcess(ContainerProcess):
    """An MPI program by srun: its containers, one for each rank, are children of slurmstepd."""

    def wait_started(self, limit_s: float = START_S) -> None:  # noqa: ARG002 # none of them is looked for
        return

    def pass_on(self, number: int) -> None:
        self.signal(number)  # to srun, which has all ranks get it


def run_bounded(
    argv: List[str], environment: Dict[str, str], limit_s: float, cancelled: Callable[[], bool]
) -> Tuple[int, str]:
    """Run a command; its exit code and the first of its output. TimedOut, and killed, after its time."""
    process = subprocess.Popen(
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output = b""
    until = time.monotonic() + limit_s
    pipe = process.stdout.fileno() if process.stdout is not None else -1
    readable = select.poll()  # select rejects descriptors from 1024 on
    readable.register(pipe, select.POLLIN)
    try:
        is_open = True
        while is_open or process.poll() is None:
            ended = process.poll() is not None
            if time.monotonic() >= until or cancelled():
                raise TimedOut(output.decode("utf-8", "replace"))
            pause_s = min(0.05, max(0.0, until - time.monotonic()))
            ready = is_open and bool(readable.poll(1000 * pause_s))
            if not is_open:
                time.sleep(pause_s)
            data = os.read(pipe, 65536) if ready else b""
            output = (output + data)[:OUTPUT_LIMIT]
            is_open = is_open and not (ready and not data) and not (ended and not ready)
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
    return exit_code_of(process.returncode), output.decode("utf-8", "replace")
