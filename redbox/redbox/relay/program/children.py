"""Starting a command without waiting for it.

A process of the job that is asked for its environment, the command's folder, or its program may hang with a
file system: then the child waits, and no other stream.
"""

import contextlib
import ctypes
import errno
import os
import signal
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from redbox.relay.program.places import NotEnterable, search_path

OTHER_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores them, and a program would go on ignoring them."""
OF_THE_RELAY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
PLACED, REFUSED = b"+", b"!"
"""Of what a child reports: it has what it becomes; it has no place, and why."""
LARGEST_REPORT = 4096
NOT_THERE = (errno.ENOENT, errno.ENOTDIR)
LARGEST_OOM_SCORE = b"1000"
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)  # loaded before any fork


class ChildProgram(NamedTuple):
    """What a child becomes."""

    argv: List[bytes]
    environment: Dict[bytes, bytes]
    folder: bytes


def start_child(
    plan: Callable[[], ChildProgram], files: Tuple[int, int, int], before: Callable[[], None]
) -> Tuple[int, int]:
    """The process, and a pipe with its reports, which ends when the program runs.

    They are PLACED and then the errno of why it does not run, or REFUSED and a sentence.
    """
    result, child_result = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(result)
        os.close(child_result)
        raise
    if not pid:
        fault = b"%d" % errno.EINVAL
        try:
            become(plan, files, before, child_result)
        except NotEnterable as refusal:
            fault = REFUSED + word_bytes(str(refusal))[: LARGEST_REPORT // 2]
        except OSError as error:
            fault = b"%d" % error.errno if error.errno else fault
        finally:
            os.write(child_result, fault)
            os._exit(1)
    os.close(child_result)
    os.set_blocking(result, False)
    return pid, result


def become(
    plan: Callable[[], ChildProgram], files: Tuple[int, int, int], before: Callable[[], None], result: int
) -> None:
    """Become the program, in a session of its own; what may wait for ever holds nothing of the relay's."""
    os.setsid()
    before()
    signal.set_wakeup_fd(-1)
    for handled in (*OTHER_SIGNALS, *OF_THE_RELAY):
        signal.signal(handled, signal.SIG_DFL)
    for number, descriptor in enumerate(files):
        os.dup2(descriptor, number)
    for inherited in map(int, os.listdir("/proc/self/fd")):
        if inherited not in (0, 1, 2, result):
            close_quietly(inherited)
    argv, environment, folder = plan()
    os.write(result, PLACED)
    try:
        os.chdir(folder)
    except OSError:
        os.chdir("/")
    execute(argv, environment)


def execute(argv: List[bytes], environment: Dict[bytes, bytes]) -> None:
    """As os.execvpe, which imports warnings in each child to read PATH."""
    folders = [b""] if b"/" in argv[0] else search_path(environment)
    errors = [execute_file(os.path.join(folder, argv[0]), argv, environment) for folder in folders]
    raise next((error for error in errors if error.errno not in NOT_THERE), errors[-1])


def execute_file(path: bytes, argv: List[bytes], environment: Dict[bytes, bytes]) -> OSError:
    """Return only where it cannot be executed."""
    try:
        os.execve(path, argv, environment)  # noqa: S606 # no shell is wanted
    except OSError as error:
        return error


def prepare_session() -> None:
    """The kernel ends a session before anything of the job, and with its relay."""
    LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(LARGEST_OOM_SCORE)
    except OSError:
        pass


def word_bytes(word: str) -> bytes:
    """As its caller wrote it, whatever encoding Python takes for that of the node."""
    return word.encode("utf-8", "surrogateescape")


def exit_document(status: int) -> Dict[str, Any]:
    if status < 0:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
        return {"code": 128 - status, "message": f"the command was ended by {name}"}
    return {"code": status}


def keep_from_children() -> None:
    """Descriptors that this process has inherited itself, but for the first three."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in (0, 1, 2):
            with contextlib.suppress(OSError):  # that of the listing
                os.set_inheritable(number, False)  # noqa: FBT003 (it has no keyword)


def open_pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> Tuple[int, int]:
    """A pipe's two ends, each of which its owner closes."""
    read_end, write_end = os.pipe()
    reader.callback(close_quietly, read_end)
    writer.callback(close_quietly, write_end)
    return read_end, write_end


def close_quietly(descriptor: int) -> None:
    if descriptor >= 0:
        with contextlib.suppress(OSError):
            os.close(descriptor)
