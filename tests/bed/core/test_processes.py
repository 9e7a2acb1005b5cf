"""A process is its pid and its start time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from redbox_bed.core.processes import Process, inner_pid


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as started:
        yield started
        started.kill()


def test_a_saved_process_is_found_again_while_it_lives(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    process = Process.of(sleeper.pid)
    assert process is not None
    process.save(tmp_path / "pid")
    assert Process.load(tmp_path / "pid") == process
    process.kill(signal.SIGTERM)
    assert Process.load(tmp_path / "pid") is None


def test_a_pid_given_out_again_is_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    process = Process.of(sleeper.pid)
    assert process is not None
    earlier = Process(process.pid, process.started - 1)
    assert not earlier.alive()
    earlier.send(signal.SIGKILL)
    assert process.alive()


def test_a_zombie_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert Process.of(sleeper.pid) is None


LEADER_ENDS = """
import ctypes, threading, time
thread = threading.Thread(target=time.sleep, args=(60,))
thread.start()
print(flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
"""Its first thread alone, as where a process of many is killed."""


def test_a_zombie_that_has_other_threads_is_not_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", LEADER_ENDS], stdout=subprocess.PIPE) as started:
        stat = Path(f"/proc/{started.pid}/stat")
        try:
            while stat.read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.01)
            process = Process.of(started.pid)
        finally:
            started.kill()
    assert process is not None


@pytest.mark.parametrize("text", ["", "12", "a b", "1 2 3"])
def test_a_file_that_was_cut_off_names_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "pid").write_text(text)
    assert Process.load(tmp_path / "pid") is None


def test_outside_of_namespaces_both_pids_are_the_same() -> None:
    assert inner_pid(os.getpid()) == os.getpid()
