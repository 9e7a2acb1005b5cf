"""slurmstepd processes that run a step, and what only looks like one."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redbox_slurmpod.supervision.processes import has_steps, step_daemons
from tests.slurmpod.harness import wait_for

NOBODY = 65534
processes: list[subprocess.Popen[bytes]] = []


def start(program: Path | str, *arguments: str, user: int | None = None) -> int:
    processes.append(subprocess.Popen([program, *arguments], user=user, cwd="/"))
    return processes[-1].pid


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    while processes:
        process = processes.pop()
        process.kill()
        process.wait()


@pytest.fixture
def slurmstepd() -> Iterator[Path]:
    """A program of that name that sleeps; others may run it."""
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    folder.chmod(0o755)
    program = folder / "slurmstepd"
    program.symlink_to(shutil.which("sleep") or "sleep")
    yield program
    shutil.rmtree(folder)


def test_a_step_is_found_until_it_ends(slurmstepd: Path) -> None:
    pid = start(slurmstepd, "600")
    wait_for(lambda: pid in step_daemons())
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: pid not in step_daemons())  # a zombie, since nobody has waited for it


def test_the_helper_that_never_ends_is_no_step(slurmstepd: Path) -> None:
    helper, step = start(slurmstepd, "infinity"), start(slurmstepd, "600")
    wait_for(lambda: step in step_daemons())
    assert helper not in step_daemons()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_a_users_program_of_that_name_keeps_no_pod(slurmstepd: Path) -> None:
    foreign, step = start(slurmstepd, "600", user=NOBODY), start(slurmstepd, "600")
    wait_for(lambda: step in step_daemons())
    assert foreign not in step_daemons()


def test_other_programs_are_no_steps() -> None:
    pid = start(sys.executable, "-c", "import time; time.sleep(600)", "slurmstepd")
    assert pid not in step_daemons()


def test_a_process_whose_name_is_no_utf8_hides_no_step(slurmstepd: Path) -> None:
    odd = slurmstepd.with_name(os.fsdecode(b"\xff\xfe"))
    odd.symlink_to(shutil.which("sleep") or "sleep")
    start(odd, "600")
    step = start(slurmstepd, "600")
    wait_for(lambda: step in step_daemons())


def test_processes_that_cannot_be_read_may_be_steps(slurmstepd: Path) -> None:
    """As without a free descriptor or memory; it is not the end of a process."""
    step = start(slurmstepd, "600")
    wait_for(lambda: step in step_daemons())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        assert has_steps()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_process_that_cannot_be_read_counts_as_a_step(tmp_path: Path) -> None:
    (tmp_path / "7" / "status").mkdir(parents=True)
    assert step_daemons(tmp_path) == [7]


def test_a_process_that_has_ended_is_no_step(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    assert not has_steps(tmp_path)
