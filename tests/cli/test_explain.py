"""`explain`: what a job waits for, where its output is, which tasks failed."""

from __future__ import annotations

from typing import Any

import pytest

from kubectl_slurm.commands import explain
from kubectl_slurm.errors import PluginError
from kubectl_slurm.slurmjobs.redbox.answers import Answer, read_answer
from kubectl_slurm.slurmjobs.redbox.requests import RedboxAccess, RedboxNotReached
from tests.cli.factories import slurmjob, view
from tests.cli.harness import Kubectl, run

DEPENDS = {"dependsOn": [{"name": "train-abc12"}, {"name": "ghost", "type": "afterany"}]}


def explained(kubectl: Kubectl, job: dict[str, Any]) -> str:
    kubectl.answers("job", job)
    ended = run(kubectl, "explain", job["metadata"]["name"])
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_dependency_is_said_in_words(kubectl: Kubectl) -> None:
    waits = slurmjob("waits", "Pending", jobID=None, spec=DEPENDS)
    shown = explained(kubectl, waits)
    assert "WAITS FOR" in shown
    assert "train-abc12  it has succeeded (afterok)  Running RUNNING" in shown
    assert "ghost        it has ended (afterany)     there is no such SlurmJob yet" in shown
    waits["spec"]["dependsOnAny"] = True
    assert "WAITS FOR ONE OF" in explained(kubectl, waits)


def test_the_files_of_its_output_are_shown(kubectl: Kubectl) -> None:
    shown = explained(kubectl, slurmjob(stdout="/home/alice/o.out", stderr="/home/alice/o.err"))
    assert "  Stdout:" in shown
    assert "/home/alice/o.err" in shown
    assert "  Output:" in explained(kubectl, slurmjob(stdout="/x.out", stderr="/x.out"))


class ArrayAtRedbox(RedboxAccess):
    """With the tasks that a test has put there."""

    tasks: object = ()

    def get(self, wanted: type[Answer], path: str) -> Answer:
        assert path == "/v1/jobs/uid-of-sweep?attempt=1"
        if isinstance(self.tasks, PluginError):
            raise self.tasks
        return read_answer(wanted, {"tasks": self.tasks} if self.tasks else {})


def failed(monkeypatch: pytest.MonkeyPatch, tasks: object, count: int) -> str:
    monkeypatch.setattr(ArrayAtRedbox, "tasks", tasks)
    monkeypatch.setattr(explain, "access_of_job", lambda *_: ArrayAtRedbox("https://x", "", "token"))
    job = view("sweep", "Failed", array={"total": 30, "failed": count})
    return explain.failed_tasks(None, job)  # type: ignore[arg-type]


def test_the_failed_tasks_of_an_array_are_named_with_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [
        {"index": 0, "phase": "Succeeded", "state": "COMPLETED", "exitCode": 0},
        {"index": 3, "phase": "Failed", "state": "FAILED", "exitCode": 7},
        {"index": 4, "phase": "Failed", "state": "OUT_OF_MEMORY", "exitCode": 0, "signal": 9},
    ]
    assert failed(monkeypatch, tasks, 2) == (
        "3 (FAILED, exit code 7), 4 (OUT_OF_MEMORY, signal 9); `kubectl slurm logs sweep_3` shows the output "
        "of one"
    )
    assert failed(monkeypatch, tasks, 0) == ""


def test_of_many_failed_tasks_the_first_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [{"index": number, "phase": "Failed", "state": "TIMEOUT"} for number in range(30)]
    words = failed(monkeypatch, tasks, 30)
    assert words.startswith("0 (TIMEOUT), 1 (TIMEOUT)")
    assert "9 (TIMEOUT), 20 more; " in words


def test_without_red_box_there_is_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    words = failed(monkeypatch, RedboxNotReached("no route"), 2)
    assert words == "2; which they are is not known: no route"
    assert failed(monkeypatch, [], 40_000) == "40000"
