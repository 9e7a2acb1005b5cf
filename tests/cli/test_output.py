"""A job's output: one task of an array, and what was written once is not written again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kubectl_slurm.errors import Refusal
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs import output
from kubectl_slurm.slurmjobs.output import PodOutput, TaskFilter, follow_output
from redbox_shared.own_lines import own_line, task_heading
from tests.cli.factories import slurmcluster, slurmjob, view
from tests.cli.harness import Kubectl as ScriptedKubectl
from tests.cli.harness import run, terminal


def heading(index: int) -> bytes:
    return own_line(task_heading(index, "COMPLETED", None, None))


def test_one_task_is_picked_out_however_the_log_arrives_in_pieces() -> None:
    log = heading(0) + b"zero\n" + heading(1) + b"one\nstill one\n" + heading(11) + b"eleven\n" + heading(2)
    for size in (1, 7, len(log)):
        parts: list[bytes] = []
        task = TaskFilter(1, parts.append)
        for start in range(0, len(log), size):
            task(log[start : start + size])
        task.finish()
        assert b"".join(parts) == b"one\nstill one\n"
        assert task.found
    missing = TaskFilter(7, lambda _: None)
    missing(log)
    missing.finish()
    assert not missing.found


def test_a_log_that_is_read_again_after_a_break_is_written_once(tmp_path: Path) -> None:
    log, program = tmp_path / "log", tmp_path / "kubectl"
    program.write_text(f'#!/bin/sh\ncat "{log}"\n')
    program.chmod(0o755)
    parts: list[bytes] = []
    output = PodOutput(Kubectl(str(program)), view(), parts.append)
    log.write_bytes(b"first\nsec")
    assert output.copy(follow=True) == ""
    log.write_bytes(b"first\nsecond\nthird\n")
    assert output.copy(follow=True) == ""
    assert b"".join(parts) == b"first\nsecond\nthird\n"


def test_a_kubectl_that_hangs_is_ended_with_its_reader(tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\necho begun\nexec sleep 600\n")
    program.chmod(0o755)
    with Kubectl(str(program)).process("get") as (process, _):
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
    assert process.wait(30) != 0
    assert isinstance(process, subprocess.Popen)


def test_each_attempt_has_a_log_of_its_own(kubectl: ScriptedKubectl) -> None:
    kubectl.answers("job", slurmjob("cow", "Failed", attempts=3, companion={"name": "cow-job-3"}))
    for number, pod in enumerate(("cow-job", "cow-job-2", "cow-job-3"), 1):
        kubectl.logs(pod, f"attempt {number}\n")
    for number in (1, 2, 3):
        assert run(kubectl, "logs", "cow", f"--attempt={number}").stdout == f"attempt {number}\n"
    assert run(kubectl, "logs", "cow").stdout == "attempt 3\n"


def test_an_attempt_that_began_and_ended_unseen_is_followed_too(
    kubectl: ScriptedKubectl,
) -> None:
    kubectl.answers("job", slurmjob("cow", state="RUNNING", attempts=1, companion={"name": "cow-job"}))
    kubectl.logs("cow-job", "attempt 1\n")
    kubectl.logs("cow-job-2", "attempt 2\n")
    kubectl.logs("cow-job-3", "attempt 3\n")
    with terminal("logs", "-f", "cow", env=kubectl.environment()) as shown:
        shown.until(lambda lines: "attempt 1" in lines)
        kubectl.answers("job", slurmjob("cow", "Failed", attempts=3, companion={"name": "cow-job-3"}))
        assert (shown.end(), shown.lines) == (0, ["attempt 1", "attempt 2", "attempt 3"])


def test_a_login_that_expires_while_a_job_is_followed_is_named_and_ends_it(
    kubectl: ScriptedKubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "FIRST_PAUSE_S", 0.0)
    kubectl.program.write_text(
        "#!/bin/sh\necho 'error: You must be logged in to the server (Unauthorized)' >&2; exit 1\n"
    )
    noted: list[str] = []
    monkeypatch.setattr(output, "note", noted.append)
    with pytest.raises(Refusal, match="log in again"):
        follow_output(Kubectl(str(kubectl.program)), view(), lambda _: None)
    assert len(noted) == 1
    assert "log in again" in noted[0]
    assert "the job is not affected" in noted[0]


def test_a_log_that_is_nowhere_any_more_is_one_sentence(kubectl: ScriptedKubectl) -> None:
    kubectl.answers("job", slurmjob("cow", "Failed", attempts=2, companion={"name": "cow-job-2"}))
    kubectl.answers("clusters", slurmcluster())
    ended = run(kubectl, "logs", "cow", "--attempt=1")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert "attempt 1 of cow has no log any more: its pod cow-job is gone" in ended.stderr


def test_an_attempt_that_has_not_been_is_refused(kubectl: ScriptedKubectl) -> None:
    for number in (0, 2):
        ended = run(kubectl, "logs", "train-abc12", f"--attempt={number}")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "has had one attempt" in ended.stderr
