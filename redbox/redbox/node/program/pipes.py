"""Pipes with room for what is gathered before it is read."""

import contextlib
import fcntl

PIPE_SIZE = 512 * 1024
F_SETPIPE_SZ = 1031  # fcntl has the name since Python 3.10


def enlarge_pipe(descriptor: int, size: int = PIPE_SIZE) -> None:
    """As far as the system lets this user."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, F_SETPIPE_SZ, size)
