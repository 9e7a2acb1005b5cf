"""The runner as one file: how it is started, and what it leaves for the next one."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from redbox.runner.program.images import hash_name
from redbox.runner.program.steps import cleanup_command, program_command, program_source
from redbox.slurm.submit.pod_script import build_pod_script
from tests.redbox.runner.harness import Node, container, end_of
from tests.redbox.runner.test_lives import PYTHONS

SUFFIX = f".{sys.implementation.cache_tag}-{sys.hexversion:x}.pyc"


def compile_it(node: Node) -> Path:
    """Run a pod for as long as its runner needs to leave its compiled form."""
    waits = f"until ls {node.folder}/runner.*.pyc; do sleep 0.05; done; exit 3"
    assert end_of(node.run(containers=[container("a", waits)]), "a") == (3, "Error")
    (compiled,) = node.folder.glob("runner.*pyc*")
    return compiled


def as_batch_job(node: Node, python: str) -> subprocess.CompletedProcess[str]:
    """The batch script, with a folder in which there is no pod, on a node with this Python."""
    own = node.folder / "bin/python3"
    own.unlink(missing_ok=True)
    own.symlink_to(python)
    folder = node.folder / "empty"
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        ["/bin/sh"],
        input=build_pod_script(str(node.folder / "runner.py"), str(folder), "set -e"),
        env={"PATH": f"{own.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("python", [sys.executable, *PYTHONS])
def test_the_next_runner_starts_from_what_the_first_has_compiled(python: str, tmp_path: Path) -> None:
    node = Node(tmp_path, python)
    compiled = compile_it(node)
    assert compiled.stat().st_mode & 0o777 == 0o600
    (tmp_path / "runner.py").write_text("raise SystemExit('from the source')")
    ended = as_batch_job(node, python)
    assert "pod.json" in ended.stderr
    assert "from the source" not in ended.stderr


def test_what_another_python_has_compiled_is_not_run(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "runner.cpython-311-30b00f0.pyc").write_bytes(b"of another one")
    (tmp_path / "runner.py").write_text("raise SystemExit('from the source')")
    assert "from the source" in as_batch_job(node, sys.executable).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
def test_what_another_user_has_compiled_is_not_run(tmp_path: Path) -> None:
    node = Node(tmp_path)
    compiled = compile_it(node)
    os.chown(compiled, 65534, 65534)
    (tmp_path / "runner.py").write_text("raise SystemExit('from the source')")
    assert "from the source" in as_batch_job(node, sys.executable).stderr


def test_where_no_compiled_form_can_be_kept_the_pod_runs_all_the_same(node: Node) -> None:
    (in_the_way := node.folder / f"runner{SUFFIX}").mkdir()
    assert end_of(node.run(containers=[container("a", "exit 3")]), "a") == (3, "Error")
    assert in_the_way.is_dir()


def test_steps_on_this_node_run_the_compiled_form_and_those_on_others_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", [f"/cache/runner-1{SUFFIX}"])
    assert program_command("step", "/f")[2:] == [f"/cache/runner-1{SUFFIX}", "step", "/f"]
    assert cleanup_command("2", "/f")[-3:] == ["/cache/runner-1.py", "cleanup", "/f"]
    monkeypatch.setattr(sys, "argv", ["/cache/runner-1.py"])
    assert program_source() == "/cache/runner-1.py"


def test_the_name_of_an_image_is_its_hash_as_container_jobs_have_it() -> None:
    assert hash_name("docker://a:1") == hashlib.sha256(b"docker://a:1").hexdigest()


def test_the_runner_is_small(node: Node) -> None:
    """Without the memory of a compiler and of OpenSSL, which took 10 MB; the limit has 4 MB of room."""
    node.program = compile_it(node)
    run = node.start(containers=[container("a", "sleep 1000")], terminationGraceS=0)
    run.wait_for(lambda report: all(row.ready for row in report.containers))
    rollup = Path(f"/proc/{run.process.pid}/smaps_rollup").read_text()
    anonymous = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Anonymous:"))
    run.delete()
    run.wait()
    assert anonymous < 11_000
