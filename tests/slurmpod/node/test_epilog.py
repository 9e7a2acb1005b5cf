"""What a job leaves on its worker: whose processes end, and an epilog that fails no node."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redbox_slurmpod.node import epilog
from redbox_slurmpod.node.epilog import EndedJob, doomed_by, end_processes
from redbox_slurmpod.supervision.processes import real_uids
from tests.slurmpod.harness import wait_for

ALICE, BOB = 61_001, 61_002
DETACHED = ("setsid", "--fork", "sh", "-c", "sleep 600 & exec sleep 600")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


def job(*, is_alone: bool = True, uid: int = ALICE) -> EndedJob:
    return EndedJob("7", uid, "w-0", is_alone)


def answer(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """What squeue does."""
    squeue = folder / "squeue"
    squeue.write_text(f"#!/bin/sh\n{script}\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.fixture(autouse=True)
def _ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(epilog, "has_steps", lambda: False)
    yield
    for pid, uid in real_uids().items():
        if uid in {ALICE, BOB}:
            os.kill(pid, signal.SIGKILL)


def detached(uid: int) -> list[int]:
    """Two processes whose parents are gone."""
    subprocess.run(DETACHED, user=uid, cwd="/", check=True)
    return wait_for(lambda: found if len(found := running(uid)) == 2 else [])


def running(uid: int) -> list[int]:
    return [pid for pid, owner in real_uids().items() if owner == uid]


@as_root
def test_double_forks_end_and_those_of_others_stay() -> None:
    detached(ALICE)
    others = detached(BOB)
    assert end_processes(lambda uid: uid == ALICE) == 2
    assert running(ALICE) == []
    assert sorted(running(BOB)) == sorted(others)


def test_a_worker_of_one_job_is_emptied_of_all_but_root_and_slurm() -> None:
    is_doomed = doomed_by(job())
    assert is_doomed is not None
    assert [uid for uid in (0, 64030, ALICE, BOB, 65534) if is_doomed(uid)] == [ALICE, BOB, 65534]


@pytest.mark.parametrize(
    ("squeue", "doomed"),
    [
        ("true", [ALICE]),
        (f"echo 7 {ALICE}; echo 8 {BOB}", [ALICE]),
        (f"echo 8 {ALICE}", None),
        ("exit 1", None),
        ("echo slurm_load_jobs error", None),
    ],
)
@pytest.mark.parametrize("why", ["Shared", "a step of another job runs"])
def test_on_a_shared_worker_only_a_user_without_another_job_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squeue: str, doomed: list[int] | None, why: str
) -> None:
    answer(tmp_path, monkeypatch, squeue)
    monkeypatch.setattr(epilog, "has_steps", lambda: True)
    is_doomed = doomed_by(job(is_alone=why != "Shared"))
    assert (is_doomed and [uid for uid in (0, 64030, ALICE, BOB) if is_doomed(uid)]) == doomed


def test_what_root_runs_stays_also_after_a_job_of_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(tmp_path, monkeypatch, "true")
    is_doomed = doomed_by(job(is_alone=False, uid=0))
    assert is_doomed is not None
    assert not is_doomed(0)


@pytest.mark.parametrize(
    ("node", "is_alone"), [("w-0", False), ("gpu-12", False), ("w-x-0", True), ("b-0", True), ("ww-0", True)]
)
def test_a_node_is_shared_by_the_beginning_of_its_name(*, node: str, is_alone: bool) -> None:
    environment = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_UID": str(ALICE),
        "SLURMD_NODENAME": node,
        "SHARED_NODE_SETS": "w gpu-",
    }
    assert EndedJob.read(environment).is_alone is is_alone


@as_root
def test_the_program_ends_them_and_never_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detached(ALICE)
    answer(tmp_path, monkeypatch, "true")
    command = [sys.executable, "-m", "redbox_slurmpod", "epilog"]
    given = {
        **os.environ,
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_UID": str(ALICE),
        "SLURMD_NODENAME": "w-0",
        "SHARED_NODE_SETS": "w",
    }
    assert subprocess.run(command, env=given, check=False).returncode == 0
    assert running(ALICE) == []
    del given["SLURM_JOB_UID"]
    assert subprocess.run(command, env=given, check=False).returncode == 0


def test_what_fails_is_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("SLURM_JOB_UID", raising=False)
    epilog.epilog()
    assert "what the job left on this worker stays" in caplog.messages
