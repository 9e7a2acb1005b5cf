"""The processes of this container: adopting and reaping them, and finding Slurm's steps among them."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Mapping
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_SIGNALED = 128
_START_TIME = 19
"""Its place in /proc/PID/stat, after the name."""
PROC = Path("/proc")
log = logging.getLogger(__name__)


def become_subreaper() -> None:
    """Adopt what the daemon's processes leave behind, even if this process is not PID 1."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot become a child subreaper")


def reap() -> dict[int, int]:
    """The children that ended since the last call, with their exit status as a shell counts it."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended[pid] = code if code >= 0 else _SIGNALED - code


def exists(pid: int) -> bool:
    return (PROC / str(pid)).exists()


def started_at(pid: int) -> float:
    """Seconds since the machine's boot, not rounded up; 0 if it has ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")


def step_daemons(proc: Path = PROC) -> list[int]:
    """The slurmstepd processes that run a step.

    Left out are the helper `slurmstepd infinity`, which holds a cgroup and never ends; zombies; and programs
    of jobs that carry the name: slurmstepd has the real uid of slurmd, which is also that of this process.
    """
    # Not Path.glob: it takes a folder that cannot be read for an empty one.
    return [int(name) for name in os.listdir(proc) if name.isdecimal() and _runs_step(proc / name)]  # noqa: PTH208


def real_uids(proc: Path = PROC) -> dict[int, int]:
    """Of the processes that run here, by their pids."""
    found = {}
    for name in filter(str.isdecimal, os.listdir(proc)):  # noqa: PTH208
        try:
            status = _fields((proc / name / "status").read_text(errors="replace"))
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        if not status["State"].startswith(("Z", "X")):
            found[int(name)] = int(status["Uid"].split()[0])
    return found


def has_steps(proc: Path = PROC) -> bool:
    """Whether a step runs here; also where that cannot be read, such as without a free descriptor."""
    try:
        return bool(step_daemons(proc))
    except OSError as error:
        log.warning("the processes here cannot be read, so steps may run: %s", error)
        return True


def _runs_step(folder: Path) -> bool:
    try:
        # A job names its processes as it likes, also in bytes that are no UTF-8.
        status = _fields((folder / "status").read_text(errors="replace"))
        arguments = (folder / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return False
    except OSError:
        return True
    return (
        status.get("Name") == "slurmstepd"
        and not status.get("State", "").startswith(("Z", "X"))
        and status.get("Uid", "").split()[:1] == [str(os.getuid())]
        and b"infinity" not in arguments
    )


def _fields(status: str) -> Mapping[str, str]:
    rows = (line.partition(":") for line in status.splitlines())
    return {name: value.strip() for name, _, value in rows}
