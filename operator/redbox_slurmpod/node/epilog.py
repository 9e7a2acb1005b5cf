"""Epilog of a worker of the profile Plain: ends what a job left behind, and removes its files.

Without a cgroup of its own, a job's double-forked processes live on beside the next user's job. A worker that
one job has to itself is emptied of all users; on a shared one only a user goes who has no other job there.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from redbox_slurmpod.node.leftover_files import LeftoverFiles, emptied_folders
from redbox_slurmpod.supervision.processes import has_steps, real_uids

log = logging.getLogger(__name__)
SPARED = frozenset({0, 64030})
"""root, and slurm of the image."""
_ASK_S, _KILL_S, _FILES_S = 10, 5, 30
_PAUSE_S = 0.02
_HOLD_A_JOB = "CONFIGURING,RUNNING,SUSPENDED,STOPPED"


@dataclass(frozen=True)
class EndedJob:
    """The job that this epilog is for, and whether others may be on its node."""

    id: str
    uid: int
    node: str
    is_alone: bool

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> EndedJob:
        """SHARED_NODE_SETS has the beginnings of the names of nodes that jobs share."""
        node = environment["SLURMD_NODENAME"]
        shared = environment.get("SHARED_NODE_SETS", "").split()
        is_shared = any(re.fullmatch(rf"{re.escape(prefix)}-?[0-9]+", node) for prefix in shared)
        return cls(environment["SLURM_JOB_ID"], int(environment["SLURM_JOB_UID"]), node, not is_shared)


def epilog() -> None:
    """Never fails: Slurm drains a node whose epilog fails."""
    try:
        _clean_up(EndedJob.read(os.environ))
    except Exception:
        log.exception("what the job left on this worker stays")


def _clean_up(job: EndedJob) -> None:
    is_doomed = doomed_by(job)
    if is_doomed is None:
        return
    killed = end_processes(is_doomed)
    files = LeftoverFiles(is_doomed, until=time.monotonic() + _FILES_S)
    for folder in emptied_folders():
        files.remove_from(folder)
    if killed or files.removed:
        log.info("job %s left %d processes and %d files: they are gone", job.id, killed, files.removed)
    if files.failed:
        log.warning("%d files of job %s stay: %s", files.failed, job.id, files.why)


def doomed_by(job: EndedJob) -> Callable[[int], bool] | None:
    """Which users' processes and files go; None: the job's user has another job here, or that is unknown."""
    if job.is_alone and not has_steps():
        return lambda uid: uid not in SPARED
    try:
        others = _other_jobs(job)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        log.warning("what job %s left stays, since other jobs of its user are unknown: %s", job.id, error)
        return None
    return None if others else lambda uid: uid == job.uid and uid not in SPARED


def _other_jobs(job: EndedJob) -> list[str]:
    """Also those without a step, whose files may be here."""
    command = ["squeue", "--noheader", f"--nodelist={job.node}", f"--states={_HOLD_A_JOB}", "--format=%A %U"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_ASK_S).stdout
    rows = [line.split() for line in listed.splitlines() if line.strip()]
    return [number for number, uid in rows if int(uid) == job.uid and number != job.id]


def end_processes(is_doomed: Callable[[int], bool], *, within_s: float = _KILL_S) -> int:
    """The number of those that were ended; they may fork meanwhile, so it looks until there is none."""
    ended: set[int] = set()
    deadline = time.monotonic() + within_s
    while doomed := [pid for pid, uid in real_uids().items() if is_doomed(uid)]:
        for pid in doomed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended.update(doomed)
        if time.monotonic() > deadline:
            log.warning("%d processes of the job do not end", len(doomed))
            break
        time.sleep(_PAUSE_S)
    return len(ended)
