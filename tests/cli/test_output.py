"""A job's output: one task of an array, and what was written once is not written again."""

from __future__ import annotations

import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_slurm.errors import NotPermitted, Refusal
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs import access, output, stream_output
from kubectl_slurm.slurmjobs.output import PodOutput, TaskFilter, follow_output
from kubectl_slurm.slurmjobs.redbox import requests
from kubectl_slurm.slurmjobs.redbox.requests import RedboxNotReached
from kubectl_slurm.slurmjobs.stream_output import copy_stream
from redbox.logs.settings import LogSettings
from redbox_shared.own_lines import late_heading, own_line, task_heading
from tests.cli.factories import slurmcluster, slurmjob, view
from tests.cli.harness import Kubectl as ScriptedKubectl
from tests.cli.harness import run, terminal


def heading(index: int) -> bytes:
    return own_line(task_heading(index, "COMPLETED", None, None))


def test_one_task_is_picked_out_however_the_log_arrives_in_pieces() -> None:
    log = heading(0) + b"zero\n" + heading(1) + b"one\nstill one\n" + heading(11) + b"eleven\n" + heading(2)
    log += own_line(late_heading(0)) + b"late zero\n" + own_line(late_heading(1)) + b"late one\n"
    for size in (1, 7, len(log)):
        parts: list[bytes] = []
        task = TaskFilter(1, parts.append)
        for start in range(0, len(log), size):
            task(log[start : start + size])
        task.finish()
        assert b"".join(parts) == b"one\nstill one\nlate one\n"
        assert task.found
    missing = TaskFilter(7, lambda _: None)
    missing(log)
    missing.finish()
    assert not missing.found


def test_a_line_that_does_not_end_is_passed_on_as_it_comes() -> None:
    parts: list[bytes] = []
    task = TaskFilter(1, parts.append)
    bar = b"50%\r" * 1000
    task(heading(1) + bar)
    assert b"".join(parts) == bar
    task(bar + b"\nnext")
    task.finish()
    assert b"".join(parts) == bar + bar + b"\nnext"
    long = own_line(task_heading(2, "FAILED" * 100, None, None))
    for size in (1, 70, 1000):
        for start in range(0, len(long), size):
            task(long[start : start + size])
    assert b"".join(parts) == bar + bar + b"\nnext"


def output_of_a_file(folder: Path) -> tuple[Path, list[bytes], PodOutput]:
    """A log that kubectl shows, what is written of it, and what reads it."""
    log, program = folder / "log", folder / "kubectl"
    program.write_text(f'#!/bin/sh\ncat "{log}"\n')
    program.chmod(0o755)
    parts: list[bytes] = []
    return log, parts, PodOutput(Kubectl(str(program)), view(), parts.append)


def test_a_log_that_is_read_again_after_a_break_is_written_once(tmp_path: Path) -> None:
    log, parts, output = output_of_a_file(tmp_path)
    log.write_bytes(b"first\nsec")
    assert output.copy(follow=True) == ""
    log.write_bytes(b"first\nsecond\nthird\n")
    assert output.copy(follow=True) == ""
    assert b"".join(parts) == b"first\nsecond\nthird\n"


def test_a_long_log_that_begins_otherwise_is_not_held_in_memory(tmp_path: Path) -> None:
    """On a virtual node no log is rotated, and each may be of gigabytes."""
    log, parts, output = output_of_a_file(tmp_path)
    log.write_bytes(b"first\nsecond\n")
    assert output.copy(follow=True) == ""
    log.write_bytes(bytes(30_000_000) + b"first\nsecond\nthird\n")
    tracemalloc.start()
    try:
        assert output.copy(follow=True) == ""
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()
    assert b"".join(parts) == b"first\nsecond\nthird\n"


@pytest.mark.parametrize(
    ("rotated", "new", "notes"),
    [
        (b"bb\nccc\nee\nff\n", b"ff\n", 0),
        (b"ee\nff\n", b"ff\n", 0),
        (b"ff\n", b"ff\n", 1),
        (b"a\nbb\nccc\nee\nff\n", b"ff\n", 0),
    ],
    ids=["more than the last", "less than the last", "nothing", "not rotated"],
)
def test_a_log_that_a_kubelet_rotated_meanwhile_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotated: bytes, new: bytes, notes: int
) -> None:
    monkeypatch.setattr(output, "COMPARED", 8)
    noted: list[str] = []
    monkeypatch.setattr(output, "note", noted.append)
    log, parts, of_pod = output_of_a_file(tmp_path)
    before = b"a\nbb\nccc\nee\n"
    for content in (before, before, rotated, rotated + b"gg\n"):
        log.write_bytes(content)
        assert of_pod.copy(follow=True) == ""
    assert b"".join(parts) == before + new + b"gg\n"
    assert len(noted) == notes


def test_a_kubectl_that_hangs_is_ended_with_its_reader(tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\necho begun\nexec sleep 600\n")
    program.chmod(0o755)
    with Kubectl(str(program)).process("get") as (process, _):
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
    assert process.wait(60) != 0
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


def test_attempts_that_failed_before_one_was_seen_to_run_are_followed_too(kubectl: ScriptedKubectl) -> None:
    """A job that fails at once is between two attempts when it is seen next."""
    kubectl.answers("job", slurmjob("cow", "Pending", attempts=1, reason="Retrying"))
    ended = slurmjob("cow", "Failed", attempts=3, exitCode=1, companion={"name": "cow-job-3"})
    kubectl.watched("MODIFIED", ended)
    kubectl.answers("last", ended)
    for number, pod in enumerate(("cow-job", "cow-job-2", "cow-job-3"), 1):
        kubectl.logs(pod, f"attempt {number}\n")
    get = '*get*slurmjobs*" -- "*)'
    again = f'{get} [ -e "$ANSWERS/again" ] && cat "$ANSWERS/last" && exit; touch "$ANSWERS/again"'
    kubectl.becomes(kubectl.program.read_text().replace(get, again))
    logs = run(kubectl, "logs", "-f", "cow")
    assert (logs.returncode, logs.stdout) == (0, "attempt 1\nattempt 2\nattempt 3\n")
    submit = run(kubectl, "submit", "--quiet", "--follow", "--wrap", "false")
    assert (submit.returncode, submit.stdout) == (1, logs.stdout)


def test_a_log_that_may_not_be_read_ends_the_following(
    kubectl: ScriptedKubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setenv("ANSWERS", kubectl.environment()["ANSWERS"])
    log = '*"--raw"*"/pods/"*"/log"*)'
    forbidden = (
        """echo 'Error from server (Forbidden): pods "x" is forbidden: User "a" cannot get' >&2; exit 1 ;;"""
    )
    kubectl.becomes(kubectl.program.read_text().replace(log, f"{log} {forbidden} never)"))
    with pytest.raises(NotPermitted, match="does not allow this"):
        follow_output(Kubectl(str(kubectl.program)), view(), lambda _: None)


class BreakingRedbox:
    """Its answers to requests for a log, of which None is a connection that breaks."""

    def __init__(self, *answers: list[tuple[str, int, bytes] | None]) -> None:
        self.answers = list(answers)
        self.paths: list[str] = []
        self.tokens = 0

    def output(self, path: str) -> Iterator[tuple[str, int, bytes]]:
        self.paths.append(path)
        for piece in self.answers.pop(0):
            if piece is None:
                raise RedboxNotReached("it broke")
            yield piece


def test_a_stream_is_followed_past_the_life_of_a_token_and_a_connection(
    kubectl: ScriptedKubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    redbox = BreakingRedbox([("g", 5, b"first"), None], [("g", 5, b"")], [("g", 12, b" second")], [])

    def access_of(*_: object) -> BreakingRedbox:
        redbox.tokens += 1
        return redbox

    monkeypatch.setattr(stream_output, "access_of", access_of)
    monkeypatch.setattr(stream_output, "cluster_of", lambda *_: None)
    monkeypatch.setattr(access, "PAUSES_S", (0.0,))
    monkeypatch.setattr(stream_output, "TOKEN_USED_S", -1.0)
    not_split = "#!/bin/sh\necho 'Error from server: stream: Forbidden' >&2; exit 1\n"
    kubectl.becomes(not_split)
    parts: list[bytes] = []
    copy_stream(Kubectl(str(kubectl.program)), view(), parts.append, "stdout", follow=True)
    assert b"".join(parts) == b"first second"
    assert [path.partition("offset=")[2] for path in redbox.paths] == [
        f"{offset}&follow=true" for offset in (0, 5, 5, 12)
    ]
    assert redbox.tokens == len(redbox.paths)
    assert LogSettings().silent_s < requests.LOG_DEADLINE_S  # red-box says nothing for so long


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


@pytest.mark.parametrize(
    ("options", "query"),
    [
        (("--tail=20",), "tailLines=20"),
        (("--since=10m",), "sinceSeconds=600"),
        (("--tail", "5", "--since", "1d"), "tailLines=5&sinceSeconds=86400"),
    ],
)
def test_the_end_of_a_log_is_asked_of_the_api_server(
    kubectl: ScriptedKubectl, options: tuple[str, ...], query: str
) -> None:
    kubectl.forgets("jobs")
    kubectl.answers("job", slurmjob("train", "Running", state="RUNNING"))
    kubectl.logs("train-job", "the end\n")
    ended = run(kubectl, "logs", "train", *options)
    assert (ended.returncode, ended.stdout) == (0, "the end\n")
    assert any(call.endswith(f"/log?{query}") for call in kubectl.calls)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--tail=x",), "'x' is not a number of lines"),
        (("--since=10",), "'10' is not a time such as 90s"),
        (("--since=0m",), "is not a time such as"),
        (("--tail=5", "-f"), "leave out -f"),
        (("--tail=5", "--attempt=1"), "leave out -f"),
        (("--since=5m", "--stderr"), "leave out -f"),
    ],
)
def test_an_end_that_cannot_be_asked_for_is_one_sentence(
    kubectl: ScriptedKubectl, options: tuple[str, ...], sentence: str
) -> None:
    kubectl.forgets("jobs")
    kubectl.answers("job", slurmjob("train", "Running", state="RUNNING"))
    ended = run(kubectl, "logs", "train", *options)
    assert ended.returncode == 2
    assert sentence in ended.stderr
