"""A step's output, as the agent reads it."""

from __future__ import annotations

import os
import pwd
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from redbox.agents.program.session import WorkerStream
from redbox.agents.program.steps import GATHER_S, RunningStep, StepOperations
from redbox.agents.program.wire import DATA
from redbox.node.program.sent_programs import BOOTSTRAP

PIECES = 200
WRITES = f"import os\nfor _ in range({PIECES}): os.write(1, b'x' * 1024)\nos.read(0, 1)\nos.write(1, b'end')"


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, none of which is taken."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


@pytest.fixture
def running() -> Iterator[RunningStep]:
    environment = {"PATH": os.environ["PATH"]}
    step = RunningStep([sys.executable, "-c", WRITES], environment, "7", "rbx-00000000")
    yield step
    step.end()
    step.result()


def test_output_that_goes_on_is_gathered_and_the_first_is_not(
    running: RunningStep, slept: list[float]
) -> None:
    read = len(running.read())
    assert slept == []
    while read < PIECES * 1024:
        running._read_at = time.monotonic()
        read += len(running.read())
        assert slept
        assert set(slept) == {GATHER_S}
    pauses = len(slept)
    running._read_at -= 1
    assert running._process.stdin is not None
    os.write(running._process.stdin.fileno(), b"x")
    assert running.read() == b"end"
    assert len(slept) == pauses


def test_a_programs_input_comes_after_the_program() -> None:
    """Also what has come before Slurm has started the step."""
    program = b"import os\nos.write(1, b'it reads ' + os.read(0, 100))"
    argv = ["python3", "-I", "-S", "-c", BOOTSTRAP]
    request = {"job": "7", "name": "rbx-00000000", "argv": argv, "env": {}}
    writer = Mock()
    stream = WorkerStream(1, request, program, writer)
    stream.feed(b"what came early")
    stream.end()
    account = pwd.getpwuid(os.getuid())
    assert StepOperations(account, ["/usr/bin", "/bin"]).run_program(stream)["code"] == 0
    written = [call.args for call in writer.write.call_args_list]
    assert b"".join(args[3] for args in written if args[0] == DATA) == b"it reads what came early"


def test_a_step_that_ends_leaves_nothing_that_waits_for_its_input() -> None:
    """Else a thread and a large pipe would stay for as long as the agent lives."""
    request = {"job": "7", "name": "rbx-00000000", "argv": ["true"], "env": {}}
    no_writer: Any = None
    stream = WorkerStream(1, request, b"", no_writer)
    before = set(threading.enumerate())
    account = pwd.getpwuid(os.getuid())
    assert StepOperations(account, ["/usr/bin", "/bin"]).run_program(stream)["code"] == 0
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()
