"""Local jobs as files: a directory for each, which is renamed to its id when it is complete.

job.json       the submission                  held                          exists while the job is held
script         the script                      started.json, ended.json      written by the supervisor
begun          exists once a supervisor was started
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from redbox.agents.program.command_records import process_start
from redbox.local.supervisor import ENDED, JOB, SCRIPT, STARTED, write_atomically
from redbox.slurm.text.states import Exit
from redbox_shared.wire import HELD_BY_USER

HELD = "held"
BEGUN = "begun"
TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY})
START_S = 5.0  # for a supervisor to write started.json


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A submitted job; its fields are the keys of job.json."""

    job_id: str
    mark: str
    name: str
    submitted_at: float
    working_directory: str
    stdout: str
    stderr: str
    env: dict[str, str]
    time_limit_s: int | None = None
    arguments: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LocalJobStatus:
    """The state of a job, by its files."""

    job: LocalJob
    state: str
    reason: str = ""
    exit: Exit | None = None
    started_at: float | None = None
    ended_at: float | None = None
    script_pid: int | None = None
    supervisor_pid: int | None = None


class LocalJobStore:
    """The jobs of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.expanduser()
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._ended: dict[str, LocalJobStatus] = {}  # by id: thousands are kept, and each poll shows all

    def add(self, job: LocalJob, script: bytes, *, held: bool) -> LocalJob:
        part = Path(tempfile.mkdtemp(prefix=".new-", dir=self._directory))
        (part / SCRIPT).write_bytes(script)
        (part / SCRIPT).chmod(0o700)
        if held:
            (part / HELD).touch()
        while True:
            job_id = str(max((int(path.name) for path in self._paths()), default=0) + 1)
            numbered = LocalJob(**{**asdict(job), **_outputs(job, job_id), "job_id": job_id})
            (part / JOB).write_text(json.dumps(asdict(numbered)))
            try:
                part.rename(self._directory / job_id)
            except OSError as error:
                if error.errno not in TAKEN:
                    shutil.rmtree(part, ignore_errors=True)
                    raise
            else:
                return numbered

    def _paths(self) -> Iterator[Path]:
        return (path for path in self._directory.iterdir() if path.name.isdigit())

    def all(self) -> list[LocalJobStatus]:
        found = (self._status(path) for path in sorted(self._paths(), key=lambda path: int(path.name)))
        return [status for status in found if status is not None]

    def get(self, job_id: str) -> LocalJobStatus | None:
        path = self._directory / job_id
        return self._status(path) if job_id.isdigit() and path.is_dir() else None

    def _status(self, path: Path) -> LocalJobStatus | None:
        return self._ended.get(path.name) or self._read_status(path)

    def _read_status(self, path: Path) -> LocalJobStatus | None:
        """None without a description of this release, which may be lost where the host lost its power."""
        described = _read(path / JOB)
        try:
            job = LocalJob(**described or {})
        except TypeError:
            return None
        started, ended = _read(path / STARTED), _read(path / ENDED)
        if ended is not None:
            return self._ended.setdefault(path.name, _ended(replace(job, env={}), started, ended))
        if started is not None:
            pids = {"script_pid": started["script"][0], "supervisor_pid": started["supervisor"][0]}
            pid, start = started["supervisor"]
            if process_start(pid) == start:
                return LocalJobStatus(job, "RUNNING", started_at=started["at"], **pids)
            ended = _read(path / ENDED)  # it may have ended after the first read
            return _ended(
                job, started, ended or {"state": "NODE_FAIL", "reason": "SupervisorDied", "at": started["at"]}
            )
        if (path / BEGUN).exists() and not (path / HELD).exists():
            return self._begun(path, job)
        return LocalJobStatus(job, "PENDING", HELD_BY_USER if (path / HELD).exists() else "Resources")

    def _begun(self, path: Path, job: LocalJob) -> LocalJobStatus:
        """The state of a job whose supervisor was started and has not written started.json."""
        if time.time() - (path / BEGUN).stat().st_mtime < START_S:
            return LocalJobStatus(job, "CONFIGURING")
        return LocalJobStatus(job, "NODE_FAIL", reason="SupervisorDied", ended_at=job.submitted_at)

    def start(self, job_id: str) -> None:
        """Start its supervisor, which outlives this process."""
        path = self._directory / job_id
        (path / BEGUN).touch()
        subprocess.Popen(
            [sys.executable, "-m", "redbox.local.supervisor", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def hold(self, job_id: str, *, held: bool) -> None:
        path = self._directory / job_id / HELD
        if held:
            path.touch()
        else:
            path.unlink(missing_ok=True)

    def cancel_pending(self, job_id: str) -> None:
        write_atomically(self._directory / job_id / ENDED, {"state": "CANCELLED", "at": time.time()})

    def delete(self, job_id: str) -> None:
        self._ended.pop(job_id, None)
        shutil.rmtree(self._directory / job_id, ignore_errors=True)


def _outputs(job: LocalJob, job_id: str) -> dict[str, str]:
    return {name: getattr(job, name).replace("%j", job_id) for name in ("stdout", "stderr")}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # a file system may keep its name, and not its content
        return None
    return value


def _ended(job: LocalJob, started: dict[str, Any] | None, ended: dict[str, Any]) -> LocalJobStatus:
    code = ended.get("code")
    return LocalJobStatus(
        job,
        ended["state"],
        reason=ended.get("reason", ""),
        exit=Exit(max(code, 0), max(-code, 0)) if code is not None else None,
        started_at=started["at"] if started else None,
        ended_at=ended["at"],
    )
