"""Starting a command without waiting for it.

Its folder, or its program, may be on a file system that hangs: then the child waits, and no other stream.
"""

import contextlib
import errno
import os
import signal
from typing import Callable, Dict, List, Tuple

OTHER_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores them, and a program would go on ignoring them."""


def start_child(
    argv: List[bytes],
    environment: Dict[bytes, bytes],
    folder: bytes,
    files: Tuple[int, int, int],
    before: Callable[[], None],
) -> Tuple[int, int]:
    """The process, and a pipe: it ends when the program runs, or after the errno of why it does not."""
    result, child_result = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(result)
        os.close(child_result)
        raise
    if not pid:
        fault = errno.EINVAL
        try:
            become(argv, environment, folder, files, before)
        except OSError as error:
            fault = error.errno or fault
        finally:
            os.write(child_result, b"%d" % fault)
            os._exit(1)
    os.close(child_result)
    os.set_blocking(result, False)
    return pid, result


def become(
    argv: List[bytes],
    environment: Dict[bytes, bytes],
    folder: bytes,
    files: Tuple[int, int, int],
    before: Callable[[], None],
) -> None:
    """Become the program, in a session of its own; the relay's other descriptors are closed by that."""
    os.setsid()
    before()
    for number, descriptor in enumerate(files):
        os.dup2(descriptor, number)
    for number in OTHER_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.chdir(folder)
    except OSError:
        os.chdir("/")
    os.execvpe(argv[0], argv, environment)  # noqa: S606 # no shell is wanted


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
