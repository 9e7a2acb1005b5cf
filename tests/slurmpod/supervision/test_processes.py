"""slurmstepd processes that run a step, and what only looks like one."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redbox_slurmpod.supervision.processes import step_daemons
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
