"""Runs a command with a boot clock of its own that begins now: it tells slurmctld that a node has rebooted.

unshare(1) has --boottime for this, but that of util-linux 2.39 (Ubuntu 24.04) takes no negative offset.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

_CLONE_NEWTIME = 0x80


def main(command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWTIME):
        number = ctypes.get_errno()
        raise OSError(number, f"a time namespace cannot be made: {os.strerror(number)}")
    # Only while no process is in the namespace: the program that is executed next is.
    uptime = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    Path("/proc/self/timens_offsets").write_text(f"boottime -{uptime} 0\n")
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
