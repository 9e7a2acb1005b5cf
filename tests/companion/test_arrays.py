"""The log of an array is that of its tasks."""

from __future__ import annotations

import subprocess

from tests.companion.pod import Pod
from tests.companion.scripted import Scripted

IS_ARRAY = (422, {"title": "This cannot work", "detail": "This job is an array", "retry": False})


def array(phase: str, *tasks: str) -> dict[str, object]:
    return {
        "phase": phase,
        "exitCode": 0,
        "jobID": "7",
        "state": "RUNNING",
        "array": {"total": len(tasks)},
        "tasks": [{"index": index, "phase": task} for index, task in enumerate(tasks)],
    }


def test_each_tasks_output_comes_whole_when_the_task_has_ended(redbox: Scripted, pod: Pod) -> None:
    redbox.refuse_log = {"stdout": IS_ARRAY, "stderr": IS_ARRAY}
    pod.environ["PYTHONUNBUFFERED"] = "1"
    redbox.job = array("Running", "Running", "Succeeded")
    redbox.task_logs = {"stdout 0": b"zero\n" * 9, "stdout 1": b"one\n" * 9, "stderr 1": b"apart\n"}
    with pod.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as companion:
        assert companion.stdout
        assert [companion.stdout.readline() for _ in range(9)] == [b"one\n"] * 9
        redbox.job = array("Succeeded", "Succeeded", "Succeeded")
        assert companion.communicate(timeout=30) == (b"zero\n" * 9, b"apart\n")
    assert pod.word["logs"] == "complete"
