"""Which processes of a node are those of the job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from redbox.node.program import job_processes
from redbox.relay.program import places

JOB = "4716"


@contextmanager
def sleeping() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "618.25"], env={"SLURM_JOB_ID": JOB})
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def launched(script: str) -> list[int]:
    """The processes whose ids it prints, once each runs `sleep`: before, it has its shell's environment."""
    pids = [int(pid) for pid in subprocess.check_output(["sh", "-c", script]).split()]
    while any(Path(f"/proc/{pid}/comm").read_text() != "sleep\n" for pid in pids):
        os.sched_yield()
    return pids


def test_sessions_of_the_relay_are_none_of_the_jobs_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever Slurm's daemon of its step is seen above it."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with sleeping() as script, sleeping() as session, sleeping() as foreign:
        daemons = {os.getppid(): f"{JOB}.3", script: f"{JOB}.batch", foreign: "4717.batch"}
        monkeypatch.setattr(places, "step_title", daemons.get)
        found = {process.pid: process.step for process in places.job_processes(JOB, os.getpid())}
        assert found == {script: "batch"}, session


def test_a_process_that_hides_its_step_is_the_jobs_by_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(places, "step_title", lambda _: None)
    launch = f"SLURM_JOB_ID={JOB} setsid sleep 619.25 >/dev/null & echo $!"
    (pid,) = launched(launch)
    try:
        assert [process.pid for process in places.job_processes(JOB, os.getpid())] == [pid]
    finally:
        os.kill(pid, 9)


@pytest.mark.parametrize("are_hidden", [False, True])
def test_of_a_het_job_the_processes_of_each_component_are_found(
    monkeypatch: pytest.MonkeyPatch,
    are_hidden: bool,  # noqa: FBT001
) -> None:
    """To slurmd its second component is job 4717, and the variable in it is that of the whole."""
    monkeypatch.setenv("SLURM_JOB_ID", JOB)
    launch = (
        f"for job in {JOB} {JOB} 4718; do SLURM_JOB_ID=$job setsid sleep 621.25 >/dev/null & echo $!; done"
    )
    first, second, foreign = pids = launched(launch)
    titles = {os.getppid(): "4717.3", first: f"{JOB}.batch", second: "4717.0", foreign: "4718.0"}
    groups = {pid: f"0::/job_{title.replace('.', '/step_')}/user\n" for pid, title in titles.items()}
    monkeypatch.setattr(places, "step_title", {}.get if are_hidden else titles.get)
    monkeypatch.setattr(job_processes, "cgroups_of", lambda pid: groups.get(pid, ""))
    try:
        found = {process.pid for process in places.job_processes(f"{JOB}+1", os.getpid())}
    finally:
        for pid in pids:
            os.kill(pid, 9)
    assert found == {first, second}


@pytest.mark.parametrize("are_hidden", [False, True])
def test_processes_of_other_jobs_are_not_asked_for_their_environment(
    monkeypatch: pytest.MonkeyPatch,
    are_hidden: bool,  # noqa: FBT001
) -> None:
    """One of them that waits in the kernel may never answer. With hidepid no slurmstepd is seen."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    launch = "for _ in 1 2; do setsid sleep 620.25 >/dev/null & echo $!; done"
    script, foreign = pids = launched(launch)
    asked = []

    def environment_of(pid: int) -> dict[bytes, bytes]:
        asked.append(pid)
        return {}

    titles = {} if are_hidden else {script: f"{JOB}.batch", foreign: "4717.batch"}
    groups = {script: f"0::/slurm/job_{JOB}/step_batch/user\n", foreign: "0::/slurm/job_4717/step_0/user\n"}
    monkeypatch.setattr(places, "step_title", titles.get)
    monkeypatch.setattr(places, "environment_of", environment_of)
    monkeypatch.setattr(job_processes, "environment_of", environment_of)
    if are_hidden:
        monkeypatch.setattr(job_processes, "cgroups_of", lambda pid: groups.get(pid, ""))
    try:
        assert [process.pid for process in places.job_processes(JOB, os.getpid())] == [script]
    finally:
        for pid in pids:
            os.kill(pid, 9)
    assert not {*pids} & {*asked}
