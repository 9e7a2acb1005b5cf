"""slurmctld's StateSaveLocation, read while slurmctld writes to it.

slurmctld replaces each file as a whole, so an open file is always of one moment. job_state comes first: a
script that is copied before a job_state may lack jobs that the job_state has, which a restored slurmctld
would then fail.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

JOB_STATE = "job_state"
_VERSION = b"PROTOCOL_VERSION\0"
_HEADER = struct.Struct(f">I{len(_VERSION)}sHQI")
"""Length and text of the version, the protocol's number, the time of writing, the next job's id."""
_ATTEMPTS, _PAUSE_S = 20, 0.1
_UNFINISHED = ".new"
_LEFT_OUT = frozenset({"lost+found", "heartbeat"})


class UnusableState(OSError):
    """The folder has no state of slurmctld, or not as it should be."""


def state_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The name and content of each file, job_state first."""
    yield JOB_STATE, _job_state(folder)
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name == JOB_STATE or name.endswith(_UNFINISHED) or path.parts[len(folder.parts)] in _LEFT_OUT:
            continue
        if path.is_file() and not path.is_symlink():
            try:
                yield name, path.read_bytes()
            except FileNotFoundError:  # of a job that has just ended
                continue


def next_job_id(job_state: bytes) -> int:
    """The id that the next job gets, from the header of this file.

    Slurm writes the header before it locks its jobs: the file may have one with this id already.
    """
    try:
        length, version, _, _, number = _HEADER.unpack_from(job_state)
    except struct.error:
        length = version = number = None
    if (length, version) != (len(_VERSION), _VERSION):
        raise UnusableState(f"{JOB_STATE} does not begin as Slurm writes it")
    return int(number)


def _job_state(folder: Path) -> bytes:
    """Slurmctld unlinks the old file before it links the new one."""
    for _ in range(_ATTEMPTS):
        try:
            return (folder / JOB_STATE).read_bytes()
        except FileNotFoundError:
            time.sleep(_PAUSE_S)
    raise UnusableState(f"{folder} has no {JOB_STATE}: slurmctld has not saved a state there yet")
