"""What a runner leaves for sessions: the first process of each container, and the variables it was given.

Servers that show their state as their title (nginx, redis, all that use setproctitle) write it over their
variables: /proc shows none of them from then on. The note is a file without a name that the runner holds open
as long as the container runs: nothing of it is left behind, however the runner ends. A relay of the same user
finds it by the runner's open files.
"""

import os
import stat
from typing import Dict, NamedTuple, Optional

NOTE = "started-{}"
UNLINKED = " (deleted)"  # as /proc shows it
LARGEST_NOTE = 4 * 1024 * 1024
"""Linux takes 2 MiB of variables and words."""


class StartedContainer(NamedTuple):
    """A container that runs, or has ended since."""

    pid: int
    environment: Dict[bytes, bytes]


def note_started(scratch: str, name: str, pid: int, environment: Dict[str, str]) -> Optional[int]:
    """The note's file, to be closed; None where the disk is full: then sessions have what /proc shows."""
    path = os.path.join(scratch, NOTE.format(name))
    pairs = (os.fsencode(variable) + b"=" + os.fsencode(value) for variable, value in environment.items())
    note = None
    try:
        note = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.unlink(path)
        with open(os.dup(note), "wb") as file:
            file.write(b"\0".join([b"%d" % pid, *pairs]))
    except OSError:
        if note is not None:
            os.close(note)
        return None
    return note


def is_note(link: str, scratch_prefix: str, name: str) -> bool:
    """Whether an open file is the note of this container, by what /proc shows of it."""
    folder, file = os.path.split(link)
    return file == NOTE.format(name) + UNLINKED and os.path.basename(folder).startswith(scratch_prefix)


def read_started(path: str) -> Optional[StartedContainer]:
    """By the path of a runner's open file; no FIFO is waited for."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            first, *entries = file.read(LARGEST_NOTE).split(b"\0") if is_regular else [b""]
    except OSError:
        return None
    if not first.isdigit():
        return None
    pairs = (entry.partition(b"=") for entry in entries)
    return StartedContainer(int(first), {variable: value for variable, equals, value in pairs if equals})
