"""A red-box that is broken or lies: the pod ends only by an end of its own job that nothing contradicts."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.companion.fakes import ScriptedServer
from tests.companion.harness import Pod

DONE = {"phase": "Succeeded", "exitCode": 0, "jobID": "7", "state": "COMPLETED"}
RUNNING = {"phase": "Running", "jobID": "7", "state": "RUNNING"}


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (RUNNING | {"phase": "Succeeded"}, b"its state in Slurm is RUNNING"),
        (RUNNING | {"phase": "Cancelled"}, b"its state in Slurm is RUNNING"),
        (DONE | {"state": None}, b"it has no state in Slurm"),
        (DONE | {"state": "FAILED"}, b"its state in Slurm is FAILED"),
        (DONE | {"exitCode": 3}, b"its exit code is 3"),
        (DONE | {"array": {"total": 2, "running": 1}}, b"1 of its tasks run"),
    ],
)
def test_an_end_that_contradicts_itself_is_reported_and_is_none(
    redbox: ScriptedServer, pod: Pod, lie: dict[str, Any], said: bytes
) -> None:
    redbox.job = RUNNING
    redbox.answers = [RUNNING, lie, lie]
    with pod.start(stderr=subprocess.PIPE) as companion:
        while redbox.answers:
            assert companion.poll() is None
        redbox.job = DONE | {"phase": "Failed", "state": "FAILED", "exitCode": 4}
        _, stderr = companion.communicate(timeout=60)
        assert companion.returncode == 4
    assert stderr.count(b"contradicts itself") == 1
    assert said in stderr


@pytest.mark.parametrize(
    "other", [{"key": "of-another"}, {"attempt": 9}, {"exitCode": "0"}, {"message": 5}, {"array": []}]
)
def test_an_end_of_another_job_or_of_nonsense_is_none(
    redbox: ScriptedServer, pod: Pod, other: dict[str, Any]
) -> None:
    redbox.job = RUNNING
    redbox.answers = [RUNNING, DONE | other]
    with pod.start() as companion:
        while redbox.answers:
            assert companion.poll() is None
        redbox.job = DONE | {"phase": "Failed", "state": "FAILED", "exitCode": 4}
        assert companion.wait(timeout=60) == 4


def test_a_log_that_ends_while_the_job_lives_goes_on_from_the_same_byte(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.job = RUNNING
    redbox.logs["stdout"] = b"first\n"
    with pod.start(stdout=subprocess.PIPE) as companion:
        while sum("/logs/" not in path for _, path in redbox.asked) < 2:  # attached, and after both logs
            assert companion.poll() is None
        redbox.logs["stdout"] = b"first\nsecond\n"
        redbox.after_log = DONE
        assert companion.communicate(timeout=60)[0] == b"first\nsecond\n"
    assert pod.termination_message["logs"] == "complete"
