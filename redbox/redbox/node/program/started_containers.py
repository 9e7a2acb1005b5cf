"""What a runner leaves for sessions: the first process of each container, and the variables it was given.

Servers that show their state as their title (nginx, redis, all that use setproctitle) write it over their
variables: /proc shows none of them from then on. The file `started/NAME` is below the runner's own folder on
the node, which only its user can enter.
"""

import os
import stat
from contextlib import suppress
from typing import Dict, NamedTuple, Optional

STARTED_FOLDER = "started"
LARGEST_NOTE = 4 * 1024 * 1024
"""Linux takes 2 MiB of variables and words."""


class StartedContainer(NamedTuple):
    """A container that runs, or has ended since."""

    pid: int
    environment: Dict[bytes, bytes]


def note_started(scratch: str, name: str, pid: int, environment: Dict[str, str]) -> None:
    """Best effort: without it sessions have what /proc shows."""
    folder = os.path.join(scratch, STARTED_FOLDER)
    path = os.path.join(folder, name)
    pairs = (os.fsencode(variable) + b"=" + os.fsencode(value) for variable, value in environment.items())
    with suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(path + ".new", "wb", opener=lambda part, flags: os.open(part, flags, 0o600)) as file:
            file.write(b"\0".join([b"%d" % pid, *pairs]))
        os.rename(path + ".new", path)


def forget_started(scratch: str, name: str) -> None:
    with suppress(OSError):
        os.unlink(os.path.join(scratch, STARTED_FOLDER, name))


def read_started(folder: str, name: str) -> Optional[StartedContainer]:
    """By a runner's folder; no link is followed, and no FIFO waited for."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        with open(os.open("{}/{}/{}".format(folder, STARTED_FOLDER, name), flags), "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            first, *entries = file.read(LARGEST_NOTE).split(b"\0") if is_regular else [b""]
    except OSError:
        return None
    if not first.isdigit():
        return None
    pairs = (entry.partition(b"=") for entry in entries)
    return StartedContainer(int(first), {variable: value for variable, equals, value in pairs if equals})
