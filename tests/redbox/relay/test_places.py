"""Which processes of a node are those of the job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

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


@contextmanager
def apart() -> Iterator[list[int]]:
    """Two processes that are no children of ours."""
    launch = "for _ in 1 2; do setsid sleep 620.25 >/dev/null & echo $!; done"
    pids = [int(pid) for pid in subprocess.check_output(["sh", "-c", launch]).split()]
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, 9)


def show_titles(monkeypatch: pytest.MonkeyPatch, titles: Mapping[int, str]) -> None:
    """Of slurmstepds."""
    for module in (places, job_processes):
        monkeypatch.setattr(module, "step_title", titles.get)


def test_sessions_of_the_relay_are_none_of_the_jobs_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever Slurm's daemon of its step is seen above it."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with sleeping() as script, sleeping() as session, sleeping() as foreign:
        daemons = {os.getppid(): f"{JOB}.3", script: f"{JOB}.batch", foreign: "4717.batch"}
        show_titles(monkeypatch, daemons)
        found = {process.pid: process.step for process in places.job_processes(JOB, os.getpid())}
        assert found == {script: "batch"}, session


@pytest.mark.parametrize("are_hidden", [False, True])
def test_processes_of_a_component_have_its_id_and_the_variable_of_the_first_one(
    monkeypatch: pytest.MonkeyPatch,
    are_hidden: bool,  # noqa: FBT001
) -> None:
    """Component 4717 of job 4716: all that is on this node is a process of 4717 there."""
    monkeypatch.setenv("SLURM_JOB_ID", JOB)
    with apart() as (script, foreign):
        titles = {os.getpid(): "4717.1", script: "4717.0", foreign: "4718.0"}
        groups = {pid: f"5:devices:/job_{title.replace('.', '/step_')}/" for pid, title in titles.items()}
        show_titles(monkeypatch, {} if are_hidden else titles)
        if are_hidden:
            monkeypatch.setattr(job_processes, "cgroups_of", lambda pid: groups.get(pid, ""))
        assert [process.pid for process in places.job_processes(JOB, os.getpid())] == [script]
        ours = job_processes.own_job(os.getpid(), JOB)
        assert [job_processes.is_of_job(pid, ours) for pid in (script, foreign)] == [True, False]


def test_a_process_that_hides_its_step_is_the_jobs_by_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    show_titles(monkeypatch, {})
    launch = f"SLURM_JOB_ID={JOB} setsid sleep 619.25 >/dev/null & echo $!"
    pid = int(subprocess.check_output(["sh", "-c", launch]))
    try:
        assert [process.pid for process in places.job_processes(JOB, os.getpid())] == [pid]
    finally:
        os.kill(pid, 9)


@pytest.mark.parametrize("are_hidden", [False, True])
def test_processes_of_other_jobs_are_not_asked_for_their_environment(
    monkeypatch: pytest.MonkeyPatch,
    are_hidden: bool,  # noqa: FBT001
) -> None:
    """One of them that waits in the kernel may never answer. With hidepid no slurmstepd is seen."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    asked = []

    def environment_of(pid: int) -> dict[bytes, bytes]:
        asked.append(pid)
        return {}

    with apart() as (script, foreign):
        titles = {} if are_hidden else {script: f"{JOB}.batch", foreign: "4717.batch"}
        groups = {
            script: f"0::/slurm/job_{JOB}/step_batch/user\n",
            foreign: "0::/slurm/job_4717/step_0/user\n",
        }
        show_titles(monkeypatch, titles)
        for module in (places, job_processes):
            monkeypatch.setattr(module, "environment_of", environment_of)
        if are_hidden:
            monkeypatch.setattr(job_processes, "cgroups_of", lambda pid: groups.get(pid, ""))
        assert [process.pid for process in places.job_processes(JOB, os.getpid())] == [script]
    assert not {script, foreign} & {*asked}
