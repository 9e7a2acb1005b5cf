"""A step's output, as the agent reads it."""

from __future__ import annotations

import os
import pwd
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
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


SQUEUE = """#!/bin/sh
echo "$@" >> {folder}/called
echo '7.0 train'
echo '7.1 rbx-11111111'
echo '7.2 rbx-00000000'
echo '7 rbx-00000000'
echo '7.batch batch'
"""
SCANCEL = '#!/bin/sh\necho "scancel $@" >> {folder}/called\n'
STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'SIGTERM'))
os.write(1, b'begun')
while True: signal.pause()
"""


def test_a_step_that_does_not_end_by_itself_is_cancelled_by_its_name_and_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, srun leaves what it has started running; and the job must never end with a session."""
    for name, text in (("squeue", SQUEUE), ("scancel", SCANCEL)):
        (tmp_path / name).write_text(text.format(folder=tmp_path))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr("redbox.agents.program.steps.CLOSED_S", 0.1)
    monkeypatch.setattr("redbox.agents.program.steps.TERMINATED_S", 1.0)
    step = RunningStep([sys.executable, "-c", STUBBORN], {"PATH": str(tmp_path)}, "7", "rbx-00000000")
    output = step.read()
    step.end()
    while data := step.read():
        output += data
    assert output == b"begunSIGTERM"
    assert step.result()["code"] == -signal.SIGKILL
    assert (tmp_path / "called").read_text().splitlines() == ["-h -s -j 7 -o %i %j", "scancel 7.2"]


def test_a_step_that_ends_when_its_input_does_is_not_signalled(tmp_path: Path) -> None:
    step = RunningStep(["/bin/cat"], {"PATH": str(tmp_path)}, "7", "rbx-00000000")
    assert step._process.stdin is not None
    step._process.stdin.close()
    step.end()
    assert step.result()["code"] == 0
