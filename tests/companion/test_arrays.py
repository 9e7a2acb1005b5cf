"""The log of an array is that of its tasks."""

from __future__ import annotations

import os
import select
import subprocess
import weakref
from collections.abc import Callable
from typing import IO, Any, ClassVar

import pytest

from redbox_companion import array_relay
from tests.companion.fakes import ScriptedServer
from tests.companion.harness import Pod

IS_ARRAY = (422, {"title": "This cannot work", "detail": "This job is an array", "retry": False})


def array(phase: str, *tasks: str) -> dict[str, object]:
    return {
        "phase": phase,
        "exitCode": 0,
        "jobID": "7",
        "state": {"Failed": "FAILED", "Succeeded": "COMPLETED"}.get(phase, "RUNNING"),
        "array": {"total": len(tasks)},
        "tasks": [
            {"index": index, "phase": task, "state": task.upper(), "exitCode": 2 if task == "Failed" else 0}
            for index, task in enumerate(tasks)
        ],
    }


def is_readable(pipe: IO[bytes], within_ms: int | None) -> bool:
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(within_ms))


def test_each_tasks_output_comes_whole_when_the_task_has_ended(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.refuse_log = {"stdout": IS_ARRAY, "stderr": IS_ARRAY}
    pod.environ["PYTHONUNBUFFERED"] = "1"
    redbox.job = array("Running", "Running", "Succeeded")
    redbox.task_logs = {"stdout 0": b"zero\n" * 9, "stdout 1": b"one\n" * 9, "stderr 1": b"apart\n"}
    with pod.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as companion:
        assert companion.stdout
        assert companion.stderr
        assert companion.stderr.readline() == b"redbox: task 1: SUCCEEDED\n"
        assert [companion.stdout.readline() for _ in range(9)] == [b"one\n"] * 9
        redbox.job = array("Failed", "Failed", "Succeeded")
        out, err = companion.communicate(timeout=60)
    assert out == b"zero\n" * 9
    assert err == b"apart\nredbox: task 0: FAILED, exit code 2\n"
    assert pod.termination_message["logs"] == "complete"


def test_a_heading_waits_for_the_reader_of_the_output_above_it(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.job = array("Succeeded", "Succeeded", "Succeeded")
    redbox.task_logs = {"stdout 0": b"zero\n", "stdout 1": b"one\n"}
    with pod.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as companion:
        assert companion.stdout
        assert companion.stderr
        assert os.read(companion.stderr.fileno(), 100) == b"redbox: task 0: SUCCEEDED\n"
        assert is_readable(companion.stdout, None)
        assert not is_readable(companion.stderr, 1000)
        assert os.read(companion.stdout.fileno(), 100) == b"zero\n"
        assert os.read(companion.stderr.fileno(), 100) == b"redbox: task 1: SUCCEEDED\n"
        companion.communicate(timeout=60)


def test_a_reader_that_is_gone_is_not_waited_for(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.job = array("Succeeded", "Succeeded", "Succeeded")
    redbox.task_logs = {"stdout 0": b"zero\n", "stdout 1": b"one\n"}
    with pod.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as companion:
        assert companion.stdout
        assert companion.stderr
        assert companion.stderr.readline() == b"redbox: task 0: SUCCEEDED\n"
        assert is_readable(companion.stdout, None)
        companion.stdout.close()
        assert companion.wait(timeout=60) == 0


def test_a_task_that_cannot_be_read_is_named_and_the_others_come(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.job = array("Succeeded", "Succeeded", "Succeeded")
    redbox.refuse_log = {"stdout 0": (403, {"title": "This may not be read", "retry": False})}
    redbox.task_logs = {"stdout 1": b"one\n"}
    ended = pod.run()
    assert ended.stdout == b"one\n"
    assert b"redbox: stdout cannot be read: task 0: This may not be read\n" in ended.stderr
    assert pod.termination_message["logs"] == "cut"


def test_what_of_a_task_comes_late_has_a_heading_of_its_own(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.job = array("Succeeded", "Succeeded", "Succeeded")
    redbox.task_logs = {"stdout 0": b"ze", "stdout 1": b"one\n"}
    redbox.late = {"stdout 0": b"zero\n"}
    ended = pod.run()
    assert ended.stdout == b"zeone\nro\n"
    assert ended.stderr.splitlines()[-1] == b"redbox: task 0: more of its output, which came late"


def test_a_task_of_which_nothing_is_shown_yet_has_its_line_when_something_is(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.job = array("Succeeded", "Succeeded", "Succeeded")
    redbox.task_logs, redbox.late = {"stderr 1": b"one\n"}, {"stderr 0": b"zero\n"}
    lines = pod.run().stderr.splitlines()
    assert lines == [b"redbox: task 1: SUCCEEDED", b"one", b"redbox: task 0: SUCCEEDED", b"zero"]


def test_a_task_of_which_nothing_was_shown_is_asked_for_again_while_others_run(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.job = array("Running", "Succeeded", "Running")
    with pod.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as companion:
        while sum("task=0" in path for _, path in redbox.asked) < 2:
            assert companion.poll() is None
        redbox.task_logs = {"stdout 0": b"zero\n"}
        assert companion.stdout
        assert companion.stderr
        assert companion.stderr.readline() == b"redbox: task 0: SUCCEEDED\n"
        assert companion.stdout.readline() == b"zero\n"
        redbox.job = array("Succeeded", "Succeeded", "Succeeded")
        companion.communicate(timeout=60)


def test_of_tasks_that_are_too_many_to_be_listed_it_says_where_their_output_is(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.job = array("Succeeded", "Succeeded") | {"tasks": None, "workingDirectory": "/home/alice/work"}
    ended = pod.run()
    assert ended.returncode == 0
    assert b"stdout cannot be read: the array has too many tasks" in ended.stderr
    assert b"/home/alice/work" in ended.stderr
    assert pod.termination_message["logs"] == "unread"


class TaskRelay:
    """A log of a task, of which some bytes are there."""

    alive: ClassVar[weakref.WeakSet[TaskRelay]] = weakref.WeakSet()

    def __init__(self, copied: list[tuple[int, str, int]], task: int) -> None:
        self.alive.add(self)
        self.generation, self.offset = "", 0
        self._copied, self._task = copied, task

    def go_on(self, generation: str, offset: int) -> None:
        self.generation, self.offset = generation, offset

    def catch_up(self) -> None:
        self._copied.append((self._task, self.generation, self.offset))
        self.generation, self.offset = f"g{self._task}", self._task

    follow = catch_up


def test_of_ended_tasks_little_is_kept_and_each_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be 50,000, and the companion has 64 MiB."""
    monkeypatch.setattr(array_relay, "POLL_S", 0.0)
    phases = ["Running", "Succeeded"]
    copied: list[tuple[int, str, int]] = []
    most = 0

    def job() -> dict[str, Any]:
        nonlocal most
        most = max(most, len(TaskRelay.alive))
        return array(phases.pop(0), *["Succeeded"] * 50)

    def relays_of(task: int, _: Callable[[], None]) -> dict[str, Any]:
        return {"stdout": TaskRelay(copied, task)}

    assert array_relay.follow_tasks(job, relays_of, lambda _: None) == []
    assert most <= 2
    assert len(TaskRelay.alive) <= 2
    assert copied[:50] == [(task, "", 0) for task in range(50)]
    assert copied[-50:] == [(task, f"g{task}" if task else "", task) for task in range(50)]
