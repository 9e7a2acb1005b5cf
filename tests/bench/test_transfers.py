"""Files and ports by kubectl: what came is looked at, and speeds are of the bytes that came."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redbox_bed.core.places import Places
from tests.bench.bench_sessions_stub import log_path
from tests.bench.bench_slurm import LOADS
from tests.bench.kubectl import Kubectl
from tests.bench.transfers import PodFolder, given_mb_s, made_folder, taken_mb_s

PLAYED = """#!{python}
import os, shutil, subprocess, sys

words = sys.argv[1:]
if words[0] == "cp":
    source, target = (word.rpartition(":")[2] for word in words[1:])
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    {fault}
else:
    os.execvp(words[words.index("--") + 1], words[words.index("--") + 1 :])
"""
LOSES = 'next(p for p in __import__("pathlib").Path(target).rglob("file-1")).write_bytes(b"")'


class PlayedKubectl(Kubectl):
    """One whose pod is this machine."""

    def command(self, *arguments: str) -> list[str]:
        return [str(self.places.state / "kubectl"), *arguments]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return made_folder(tmp_path / "sent", 20)


def there(source: Path, tmp_path: Path, fault: str = "pass") -> PodFolder:
    program = tmp_path / "kubectl"
    program.write_text(PLAYED.format(python=sys.executable, fault=fault))
    program.chmod(0o755)
    kubectl = PlayedKubectl(Places(tmp_path, tmp_path), "alice")
    return PodFolder(kubectl, "pod", source, str(tmp_path / "place"))


def test_a_folder_goes_both_ways_and_nothing_stays_in_the_pod(source: Path, tmp_path: Path) -> None:
    folder = there(source, tmp_path)
    assert all(speed > 0 for seen in (folder.copied(), folder.packed()) for speed in seen.values())
    assert not (tmp_path / "place").exists()


def test_a_copy_that_loses_bytes_has_no_speed(source: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"file-1 was 10000000 and is 0"):
        there(source, tmp_path, LOSES).copied()


def test_a_tar_that_loses_modes_or_times_has_no_speed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAR_OPTIONS", "--touch")
    with pytest.raises(RuntimeError, match=r"2 files are not what was sent"):
        there(source, tmp_path).packed()


@pytest.fixture
def served(unused_tcp_port: int) -> Iterator[tuple[int, Any]]:
    """The job's program, once it has written its log."""
    command = [sys.executable, str(LOADS / "transfer_job.py"), str(unused_tcp_port), "25000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        yield unused_tcp_port, job.stdout.read()
        job.kill()


def test_the_job_writes_its_log_and_then_sends_and_receives(served: tuple[int, bytes]) -> None:
    port, log = served
    assert log == (b"x" * 99 + b"\n") * 25000
    assert given_mb_s(port, 3) > 0
    assert taken_mb_s(port, 3) > 0


def test_where_slurm_says_that_a_jobs_output_is() -> None:
    shown = "JobId=7 JobName=train\n   StdErr=/home/alice/7.err\n   StdOut=/home/alice/a b/7.out\n   Power=\n"
    assert log_path(shown) == "/home/alice/a b/7.out"
    with pytest.raises(RuntimeError, match="scontrol does not show"):
        log_path("JobId=7\n")
