"""A job's output: one task of an array, and what was written once is not written again."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.output import PodOutput, TaskFilter
from redbox_shared.own_lines import own_line, task_heading
from tests.cli.factories import view


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
