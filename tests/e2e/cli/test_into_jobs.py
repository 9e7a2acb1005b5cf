"""kubectl slurm shell, exec, cp and forward, under both ways of delivery."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from redbox_bed.bed import Bed
from tests.e2e.harness.kubectl_slurm import NODE_PORT, SERVES, WITHIN_S, Plugin
from tests.e2e.harness.terminals import read_until, terminal
from tests.e2e.harness.virtual_chart import virtual_delivery
from tests.e2e.harness.waiting import eventually
from tests.ports import free_port


def test_a_command_runs_in_the_job_and_files_go_both_ways(
    plugin: Plugin, running: str, tmp_path: Path
) -> None:
    assert plugin.well("exec", running, "--", "id", "-un") == "alice\n"
    assert plugin("exec", running, "--", "sh", "-c", "exit 7").returncode == 7
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.bin").write_bytes(bytes(range(256)) * 1000)
    plugin.well("cp", str(folder), f"{running}:copied")
    plugin.well("cp", f"{running}:copied", str(tmp_path / "back"))
    assert (tmp_path / "back/a.bin").read_bytes() == (folder / "a.bin").read_bytes()
    missing = plugin("cp", f"{running}:nothing", str(tmp_path))
    assert missing.returncode == 1
    assert "was not copied whole" in missing.stderr


def test_a_shell_has_a_terminal(plugin: Plugin, running: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in plugin.env.items():
        monkeypatch.setenv(name, value)
    with terminal(plugin.argv("shell", running)) as (process, screen):
        read_until(screen, rb"\$ $")  # the shell drops what is typed before its prompt
        os.write(screen, b"echo in $((40 + 2)) $(stty size)\n")
        read_until(screen, rb"in 42 33 101")
        os.write(screen, b"exit 5\n")
        assert process.wait(WITHIN_S) == 5


def test_a_port_that_the_pod_does_not_serve_is_forwarded_through_sessions(
    plugin: Plugin, running: str
) -> None:
    assert f"of {_job_id(plugin, running)}" in _forwarded(plugin, running)


def _forwarded(plugin: Plugin, name: str) -> str:
    local = free_port()
    argv = plugin.argv("forward", name, f"{local}:{NODE_PORT}")
    with subprocess.Popen(argv, env=plugin.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:

            def read() -> str:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{local}/", timeout=10) as answer:
                        return str(answer.read().decode())
                except OSError:
                    return ""

            return eventually(read)
        finally:
            process.terminate()


def _output(plugin: Plugin, *words: str) -> str:
    return plugin(*words).stdout


def _job_id(plugin: Plugin, name: str) -> str:
    return plugin.well("queue", "--noheader", name).split()[0]


@pytest.mark.nightly
def test_with_virtual_delivery_the_commands_are_the_same(plugin: Plugin, bed: Bed, tmp_path: Path) -> None:
    plugin("cancel", "--all", "--wait")
    with virtual_delivery(bed):
        name = plugin.submitted("-t", "20", "-c", "1", "--wrap", f"echo begun; {SERVES}")
        eventually(lambda: plugin("exec", name, "--", "true").returncode == 0)
        assert plugin.well("exec", name, "--", "id", "-un") == "alice\n"
        assert plugin.well("logs", name).startswith("begun\n")
        (tmp_path / "in.txt").write_text("hello")
        plugin.well("cp", str(tmp_path / "in.txt"), f"{name}:/tmp/{name}.txt")
        plugin.well("cp", f"{name}:/tmp/{name}.txt", str(tmp_path / "out.txt"))
        assert (tmp_path / "out.txt").read_text() == "hello"
        assert f"of {_job_id(plugin, name)}" in _forwarded(plugin, name)
        two, array = (
            plugin.submitted("-t", "20", *options, "--wrap", "sleep 600")
            for options in (("-N", "2", "--nodelist=n1,n2"), ("-c", "1", "-a", "3-4"))
        )
        for node in ("n1", "n2"):
            hostname = partial(_output, plugin, "exec", two, "--node", node, "--", "hostname")
            assert eventually(hostname) == f"{node}\n"
        command = ("--", "printenv", "SLURM_ARRAY_TASK_ID")
        assert eventually(lambda: plugin("exec", f"{array}_4", *command).stdout) == "4\n"
        unnamed = plugin("exec", array, *command)
        assert "name one of its tasks" in unnamed.stderr
        plugin.well("cancel", "--wait", name, two, array)
