"""The cancel of tasks of an array: which are requested, and what is said about the outcome."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from kubectl_slurm.errors import Refusal
from kubectl_slurm.kubectl.program import Kubectl as RealKubectl
from kubectl_slurm.slurmjobs import requested_actions
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.requested_actions import request_task_cancels
from redbox_shared.requested_actions import CANCEL_TASKS, MOST_TASKS
from tests.cli.factories import slurmjob, view
from tests.cli.harness import Kubectl, cancelled, run

TASKS = re.compile(r'"redbox.dev/cancel-tasks": "(\S+)/(\w+)"')


def answer_of_the_operator(kubectl: Kubectl, reason: str, words: str) -> None:
    """As its event, once a request is there."""
    program = kubectl.program.read_text()
    value = r's#.*cancel-tasks": "\([^"]*\)".*#\1#p'
    event = f'{{"items": [{{"reason": "{reason}", "message": "%s: {words}", "lastTimestamp": "x"}}]}}'
    wanted = f'"$(sed -n \'{value}\' "$ANSWERS/calls" | tail -n 1)"'
    answers = f"    *involvedObject*) printf '{event}' {wanted} ;;\n    */version*)"
    kubectl.becomes(program.replace("    */version*)", answers))


def test_tasks_of_an_array_are_cancelled_in_one_request(kubectl: Kubectl) -> None:
    answer_of_the_operator(kubectl, "TasksCancelled", "Slurm has cancelled them.")
    kubectl.answers("job", slurmjob("wait-def34", jobID="13", run=2, spec={"array": "0-9"}))
    ended = run(kubectl, "cancel", "13_4", "wait-def34_[1-2,7]", "train-abc12")
    assert ended.returncode == 0, ended.stderr
    assert "tasks 1, 2, 4, 7 are cancelled" in ended.stdout
    assert TASKS.findall("\n".join(kubectl.calls))[0][0] == "13/1/1,2,4,7"
    assert cancelled(kubectl) == ["wait-def34"]  # as the fake answers for any name
    whole = run(kubectl, "cancel", "13_[0-9]")
    assert (whole.returncode, "wait-def34 (Slurm job 13) is cancelled" in whole.stdout) == (0, True)


def test_a_task_that_slurm_does_not_cancel_is_said(kubectl: Kubectl) -> None:
    answer_of_the_operator(kubectl, "CancelTasksRefused", "task 4: Slurm no longer has job 13_4")
    ended = run(kubectl, "cancel", "13_4")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "task 4: Slurm no longer has job 13_4" in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--me", "13_4"],
        ["--delete", "13_4"],
        ["12_4"],
        ["13_[0-99]"],
        ["13_[x]"],
        ["13_[3-1]"],
        ["13_[]"],
        ["pod/hello"],
    ],
)
def test_what_is_no_part_of_an_array_cancels_nothing(kubectl: Kubectl, words: list[str]) -> None:
    assert run(kubectl, "cancel", *words).returncode != 0
    assert not any("patch" in call for call in kubectl.calls)


def test_more_tasks_than_one_request_may_have_are_cancelled_request_after_request(kubectl: Kubectl) -> None:
    answer_of_the_operator(kubectl, "TasksCancelled", "Slurm has cancelled them.")
    ended = run(kubectl, "cancel", "13_[0-14]", "13_[10-24]", "13_30")
    assert ended.returncode == 0, ended.stderr
    values = [value for value, _ in TASKS.findall("\n".join(kubectl.calls))]
    first, second = ([int(task) for task in value.split("/")[2].split(",")] for value in values)
    assert (first, second) == ([*range(20)], [20, 21, 22, 23, 24, 30])
    lines = ended.stdout.splitlines()
    assert [line.rpartition(":")[2] for line in lines] == [
        f" tasks {', '.join(map(str, tasks))} are cancelled" for tasks in (first, second)
    ]


def test_what_one_request_refuses_does_not_keep_the_next(kubectl: Kubectl) -> None:
    answer_of_the_operator(kubectl, "CancelTasksRefused", "task 4: Slurm no longer has job 13_4")
    ended = run(kubectl, "cancel", "13_[0-19]", "13_20")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("not all tasks were cancelled") == 2


def test_without_the_right_to_see_the_outcome_the_cancel_is_said_to_be_requested(kubectl: Kubectl) -> None:
    forbidden = 'events is forbidden: User "eve" cannot list resource "events" in API group ""'
    refusal = f'Error from server (Forbidden): {forbidden} in the namespace "alice"'
    kubectl.when('*"get --output=json events"*', f"echo '{refusal}' >&2; exit 1")
    ended = run(kubectl, "cancel", "13_[0-19]", "13_20")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "is requested, and that of 20 is not; whether it was done is not known yet" in ended.stderr
    assert "a RoleBinding to view gives this right" in ended.stderr
    assert len(TASKS.findall("\n".join(kubectl.calls))) == 1  # the next would replace it


class Operator:
    """It answers a request after a time of a clock that only sleeps move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers_after: timedelta) -> None:
        self.now_is = datetime(2026, 11, 28, tzinfo=UTC)
        self.requests: list[str] = []
        self._answers_at = self.now_is + answers_after
        monkeypatch.setattr(requested_actions, "datetime", self)
        monkeypatch.setattr(time, "sleep", self._sleep)
        monkeypatch.setattr(requested_actions, "patch", self._patch)
        monkeypatch.setattr(requested_actions, "list_events", self._events)

    def now(self, _: object) -> datetime:
        return self.now_is

    def cancel(self, tasks: range) -> list[Any]:
        return [*request_task_cancels(cast("RealKubectl", None), view(), tasks)]

    def _sleep(self, seconds: float) -> None:
        self.now_is += timedelta(seconds=seconds)

    def _patch(self, _: RealKubectl, __: SlurmJobView, change: dict[str, Any]) -> None:
        self.requests.append(change["metadata"]["annotations"][CANCEL_TASKS])

    def _events(self, *_: object) -> list[dict[str, Any]]:
        message = f"{self.requests[-1]}: Slurm has cancelled them."
        is_late = self.now_is < self._answers_at
        return [] if is_late else [{"reason": "TasksCancelled", "message": message}]


def test_many_tasks_are_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm cancels one after the other."""
    tasks = range(MOST_TASKS)
    assert Operator(monkeypatch, timedelta(seconds=100)).cancel(tasks) == [tasks]


def test_without_an_answer_the_cancel_is_not_said_to_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Operator(monkeypatch, timedelta(days=1))
    with pytest.raises(Refusal) as caught:
        operator.cancel(range(MOST_TASKS + 1))
    assert "is requested, and that of 20 is not; whether it was done is not known yet" in str(caught.value)
    assert "`kubectl slurm explain train-abc12`" in str(caught.value)
    assert len(operator.requests) == 1  # the next would replace it
