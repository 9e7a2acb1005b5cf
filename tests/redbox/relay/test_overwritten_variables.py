"""Probes of, and sessions in, a container whose program has written its title over its variables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from redbox.node.program.started_containers import is_note, note_started, read_started
from redbox.relay.program import places
from tests.redbox.runner.harness import LIMIT_S, Node, container, reasons, state_of

JOB = "4719"
OVERWRITE = """
import ctypes, sys, time
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[47]), int(fields[48])
ctypes.memset(start, 0, end - start)
open(sys.argv[1], "w")
time.sleep(1000)
"""
"""As nginx and redis do it."""


def name_of(pid: int) -> str:
    """The stand-in for Apptainer is a program of Python."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return "starter" if any(word.endswith(b"/bin/apptainer") for word in words) else "program"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    namespaces = ["unshare", "-Umipf", "--map-root-user", "--mount-proc", "true"]
    if subprocess.run(namespaces, check=False, capture_output=True).returncode:
        pytest.skip("no namespaces can be made here")
    node = Node(tmp_path)
    node.start_by = ["env", f"SLURM_JOB_ID={JOB}"]
    return node


def test_probes_and_sessions_have_the_variables_all_the_same(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "program_name", name_of)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    probe = {"exec": ["sh", "-c", 'test "$PASSWORD" = secret'], "periodS": 1, "timeoutS": LIMIT_S}
    own = [{"name": "PASSWORD", "value": "secret"}, {"name": "LD_PRELOAD", "value": ""}]
    program = {"command": [sys.executable, "-IS", "-c", OVERWRITE, str(tmp_path / "up")], "env": own}
    run = node.start(
        containers=[{**container("a", ""), **program, "readinessProbe": probe}], terminationGraceS=0
    )
    run.wait_for(lambda _: (tmp_path / "up").exists())
    report = run.wait_for(lambda report: state_of(report, "a").ready)
    assert "Unhealthy" not in reasons(report, "a")
    assert not list(run.scratch.glob("*/started*")), "the variables would be left by a runner that is killed"
    monkeypatch.setattr(places, "step_title", {run.process.pid: f"{JOB}.batch"}.get)
    place = places.find_surroundings(JOB, "a", os.getpid())
    command = [*place.enter, b"sh", b"-c", b"echo $PASSWORD $REDBOX_CONTAINER; id -u"]
    assert subprocess.check_output(command, env=place.environment).split() == [b"secret", b"a", b"0"]
    assert not any(b"secret" in word for word in place.enter)
    with pytest.raises(places.NotEnterable):
        places.find_surroundings(JOB, "b", os.getpid())
    run.delete()
    run.wait()


def test_a_note_has_no_name_and_only_its_container_has_it(tmp_path: Path) -> None:
    scratch = tmp_path / "redbox-pod-7"
    scratch.mkdir()
    note = note_started(str(scratch), "a", 7, {"NAME": "a=b\nc"})
    assert note is not None
    path = f"/proc/self/fd/{note}"
    assert (os.fstat(note).st_mode & 0o777, list(scratch.iterdir())) == (0o600, [])
    assert read_started(path) == (7, {b"NAME": b"a=b\nc"})
    found = [
        is_note(str(Path(path).readlink()), prefix, name)
        for prefix in ("redbox-pod-", "x")
        for name in ("a", "b")
    ]
    assert found == [True, False, False, False]
    os.close(note)
    assert read_started(path) is None
    assert note_started(str(tmp_path / "missing"), "a", 7, {}) is None


def test_only_a_note_is_taken_for_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "odd").write_bytes(b"x\0A=b")
    assert [read_started(str(tmp_path / name)) for name in ("pipe", "odd", "missing")] == [None] * 3
