"""A job that is waited for: events that break off, and rights that are missing."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from kubectl_slurm.cli import main
from kubectl_slurm.errors import NotPermitted
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs import access
from kubectl_slurm.slurmjobs.following import until_finished
from kubectl_slurm.slurmjobs.job import SlurmJobView
from tests.cli.factories import slurmjob
from tests.cli.harness import Kubectl as ScriptedKubectl
from tests.cli.harness import run

BROKEN = """\
#!/bin/sh
cd {folder} || exit
if [ -e begun ]; then
    cat rest
    exec sleep 60
fi
touch begun
cat first
echo 'error: http2: client connection lost' >&2
exit 1
"""


def test_half_an_event_is_none_and_the_job_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "PAUSES_S", (0.0,))
    running, ended = slurmjob(state="RUNNING"), slurmjob(phase="Succeeded", state="COMPLETED")
    events = [json.dumps({"type": "MODIFIED", "object": obj}) for obj in (running, ended)]
    (tmp_path / "first").write_text(f"{events[0]}\n{events[1][:100]}")
    (tmp_path / "rest").write_text(f"{events[1]}\n")
    program = tmp_path / "kubectl"
    program.write_text(BROKEN.format(folder=tmp_path))
    program.chmod(0o755)
    job = until_finished(Kubectl(str(program)), SlurmJobView(running))
    assert job.phase == "Succeeded"


AWAY = """\
#!/bin/sh
cd {folder} || exit
echo >>asked
if [ "$(wc -l <asked)" -gt 9 ]; then
    cat event
    exec sleep 60
fi
echo {words} >&2
exit 1
"""


@pytest.mark.parametrize(
    ("words", "is_waited_for"),
    [
        ("'The connection to the server bed:6443 was refused'", True),
        ("'Error from server (Forbidden): slurmjobs.redbox.dev is forbidden'", False),
    ],
)
def test_an_api_server_that_is_away_for_minutes_is_no_end_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, *, is_waited_for: bool
) -> None:
    """Who took that for a failure of the job would submit it again."""
    monkeypatch.setattr(access, "PAUSES_S", (0.0, 0.0))
    ended = slurmjob(phase="Succeeded", state="COMPLETED")
    (tmp_path / "event").write_text(json.dumps({"type": "MODIFIED", "object": ended}) + "\n")
    program = tmp_path / "kubectl"
    program.write_text(AWAY.format(folder=tmp_path, words=words))
    program.chmod(0o755)
    with nullcontext() if is_waited_for else pytest.raises(NotPermitted):
        job = until_finished(Kubectl(str(program)), SlurmJobView(slurmjob(state="RUNNING")))
        assert job.phase == "Succeeded"


FORBIDDEN = "echo 'Error from server (Forbidden): {0} is forbidden: User \"a\" cannot {1}' >&2; exit 1 ;;"


def test_a_submit_that_cannot_be_watched_was_one(
    kubectl: ScriptedKubectl, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that took it for a failure would submit the job again."""
    monkeypatch.setattr(access, "PAUSES_S", ())
    for name, value in kubectl.environment().items():
        monkeypatch.setenv(name, value)
    kubectl.answers("job", slurmjob(phase="Pending", jobID=None))
    watch = '*"--raw"*"watch=true"*)'
    forbidden = FORBIDDEN.format("slurmjobs.redbox.dev", "watch")
    kubectl.becomes(kubectl.program.read_text().replace(watch, f"{watch} {forbidden} never)"))
    code = main(["submit", "--parsable", "--wrap", "true"])
    shown = capsys.readouterr()
    assert (code, shown.out) == (0, "train-abc12\n")
    assert "train-abc12 is created, and may be in Slurm: Kubernetes does not allow this" in shown.err


def test_a_job_is_explained_to_who_may_not_read_events(kubectl: ScriptedKubectl) -> None:
    """The role redbox-viewer has SlurmJobs alone."""
    forbidden = FORBIDDEN.format("events", "list")
    kubectl.becomes(
        kubectl.program.read_text().replace(
            'case "$*" in', f'case "$*" in *"get --output=json events"*) {forbidden}'
        )
    )
    ended = run(kubectl, "explain", "train-abc12")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("train-abc12 runs on n[1-2]")


def test_an_explanation_has_times_the_directory_and_the_limit_with_its_unit(kubectl: ScriptedKubectl) -> None:
    kubectl.forgets("jobs")
    job = slurmjob(
        "train",
        "Running",
        state="RUNNING",
        spec={"resources": {"time": "10"}},
        submittedAt="2026-11-28T10:00:00Z",
        startedAt="2026-11-28T10:00:05Z",
        workingDirectory="/home/alice/run",
    )
    kubectl.answers("job", job)
    shown = " ".join(run(kubectl, "explain", "train").stdout.split())
    assert "Submitted: 2026-11-28T10:00:00 Started: 2026-11-28T10:00:05 Time limit: 10:00" in shown
    assert "Directory: /home/alice/run on hpc1" in shown
