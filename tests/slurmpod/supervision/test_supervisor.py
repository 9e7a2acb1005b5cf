"""A daemon under the supervisor: followed through reconfigures, started again, ended with its status."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.slurmpod.harness import SUPERVISE, Supervised, cmdline, parent_of, wait_for
from tests.slurmpod.kubelet import project

Start = Callable[..., Supervised]


def test_sigterm_ends_the_daemon_and_its_status_is_the_supervisors(supervised: Start) -> None:
    daemon = supervised(restarts=True)
    daemon.wait_for("up")
    daemon.send(signal.SIGTERM)
    assert daemon.end() == 7


def test_a_daemon_that_is_killed_and_not_restarted_ends_its_container(supervised: Start) -> None:
    daemon = supervised(restarts=False)
    (pid,) = daemon.wait_for("up")
    os.kill(pid, signal.SIGKILL)
    assert daemon.end() == 128 + signal.SIGKILL
    assert len(daemon.entries("up")) == 1


def test_a_killed_daemon_is_started_again_and_its_steps_live_on(supervised: Start) -> None:
    daemon = supervised(restarts=True)
    (first,) = daemon.wait_for("up")
    daemon.send(signal.SIGUSR2)
    (step,) = daemon.wait_for("step")
    wait_for(lambda: parent_of(step) == daemon.process.pid)
    os.kill(first, signal.SIGKILL)
    _, second = daemon.wait_for("up", 2)
    assert second != first
    assert parent_of(step) == daemon.process.pid
    os.kill(step, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{step}").exists())  # reaped, no zombie


def test_after_a_reconfigure_the_successor_is_the_main_process(supervised: Start) -> None:
    daemon = supervised(restarts=False)
    daemon.wait_for("up")
    daemon.send(signal.SIGHUP)
    first, second = daemon.wait_for("up", 2)
    wait_for(lambda: not cmdline(first))
    wait_for(lambda: parent_of(second) == daemon.process.pid)
    daemon.send(signal.SIGHUP)
    _, _, third = daemon.wait_for("up", 3)
    wait_for(lambda: not cmdline(second))
    assert daemon.process.poll() is None
    daemon.send(signal.SIGTERM)
    assert daemon.end() == 7
    assert daemon.entries("SIGTERM") == [third]


def test_a_successor_that_is_killed_ends_the_container_too(supervised: Start) -> None:
    daemon = supervised(restarts=False)
    daemon.wait_for("up")
    daemon.send(signal.SIGHUP)
    _, second = daemon.wait_for("up", 2)
    wait_for(lambda: f"the main process is {second} now" in daemon.log)
    os.kill(second, signal.SIGKILL)
    assert daemon.end() != 0


def test_a_refused_configuration_leaves_the_daemon_as_it_is(supervised: Start, tmp_path: Path) -> None:
    daemon = supervised(restarts=False)
    (pid,) = daemon.wait_for("up")
    (tmp_path / "refuse").touch()
    daemon.send(signal.SIGHUP)
    assert daemon.wait_for("refused") == [pid]
    daemon.send(signal.SIGTERM)
    assert daemon.end() == 7
    assert daemon.entries("SIGTERM") == [pid]


def test_a_daemon_that_dies_at_its_start_is_tried_again_until_sigterm(
    supervised: Start, tmp_path: Path
) -> None:
    (tmp_path / "die").touch()
    daemon = supervised(restarts=True)
    daemon.wait_for("dies", 4)
    daemon.send(signal.SIGTERM)
    assert daemon.end() in (3, 128 + signal.SIGTERM)  # between two starts, or at one


def test_a_daemon_that_is_restarted_after_its_cause_is_gone_serves(supervised: Start, tmp_path: Path) -> None:
    (tmp_path / "die").touch()
    daemon = supervised(restarts=True)
    daemon.wait_for("dies", 2)
    (tmp_path / "die").unlink()
    daemon.wait_for("up")
    daemon.send(signal.SIGTERM)
    assert daemon.end() == 7


def test_the_program_for_a_ready_daemon_runs_after_each_start(supervised: Start, tmp_path: Path) -> None:
    daemon = supervised(restarts=True)
    (pid,) = daemon.wait_for("up")
    wait_for((tmp_path / "ready").exists)
    (tmp_path / "ready").unlink()
    daemon.send(signal.SIGHUP)
    _, second = daemon.wait_for("up", 2)
    wait_for(lambda: f"the main process is {second} now" in daemon.log)
    assert not (tmp_path / "ready").exists()
    os.kill(second, signal.SIGKILL)
    wait_for((tmp_path / "ready").exists)
    assert pid != second


def test_a_daemon_has_the_usual_signals_and_its_environment(tmp_path: Path) -> None:
    """Python ignores SIGPIPE for itself, and a program would inherit that."""
    supervise = [sys.executable, SUPERVISE, str(tmp_path), "ends", "60"]
    command = ["sh", "-c", "cat /proc/self/status; env"]
    ended = subprocess.run([*supervise, *command], capture_output=True, text=True, check=True, timeout=60)
    ignored = next(line for line in ended.stdout.splitlines() if line.startswith("SigIgn:")).split()[1]
    assert int(ignored, 16) & (1 << signal.SIGPIPE - 1) == 0
    assert "FROM_SUPERVISOR=yes" in ended.stdout.splitlines()
    assert f"NOTIFY_SOCKET={tmp_path}/run/notify.sock" in ended.stdout.splitlines()


def test_a_successor_that_takes_over_while_the_pod_ends_is_ended_too(supervised: Start) -> None:
    """HUP is handled before TERM, so that the old process takes the TERM with it."""
    daemon = supervised(restarts=True)
    (first,) = daemon.wait_for("up")
    os.kill(first, signal.SIGSTOP)
    daemon.send(signal.SIGHUP)
    daemon.send(signal.SIGTERM)
    wait_for(lambda: pending_signals(first) >= {signal.SIGHUP, signal.SIGTERM})
    os.kill(first, signal.SIGCONT)
    assert daemon.end() == 7
    _, second = daemon.entries("up")
    assert daemon.entries("SIGTERM") == [second]


def pending_signals(pid: int) -> set[int]:
    status = Path(f"/proc/{pid}/status").read_text()
    pending = int(next(line for line in status.splitlines() if line.startswith("ShdPnd:")).split()[1], 16)
    return {number for number in range(1, 32) if pending & 1 << number - 1}


def test_a_main_process_that_is_gone_when_it_is_named_is_a_dead_one(supervised: Start) -> None:
    daemon = supervised(restarts=True)
    daemon.wait_for("up")
    gone = subprocess.Popen(["true"])
    gone.wait()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(f"MAINPID={gone.pid}".encode(), str(daemon.folder / "run/notify.sock"))
    daemon.wait_for("up", 2)


def test_sigterm_waits_while_a_step_holds_it_and_the_daemon_is_kept_running(
    supervised: Start, tmp_path: Path
) -> None:
    (tmp_path / "step").touch()
    daemon = supervised(restarts=True)
    (first,) = daemon.wait_for("up")
    daemon.send(signal.SIGTERM)
    wait_for(lambda: "the daemon ends when nothing holds it" in daemon.log)
    os.kill(first, signal.SIGKILL)
    _, second = daemon.wait_for("up", 2)
    daemon.send(signal.SIGUSR2)
    daemon.wait_for("step")
    assert daemon.entries("SIGTERM") == []
    (tmp_path / "step").unlink()
    assert daemon.end() == 7
    assert daemon.entries("SIGTERM") == [second]


def test_a_restart_that_fails_is_tried_again(supervised: Start) -> None:
    daemon = supervised(restarts=True)
    (first,) = daemon.wait_for("up")
    daemon.program.unlink()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: daemon.log.count("the daemon could not be started") > 1)
    daemon.allow_starts()
    daemon.wait_for("up", 2)
    daemon.send(signal.SIGTERM)
    assert daemon.end() == 7


def test_a_program_for_a_ready_daemon_that_cannot_be_started_ends_nothing(supervised: Start) -> None:
    daemon = supervised(restarts=True)
    (first,) = daemon.wait_for("up")
    wait_for((daemon.folder / "ready").exists)
    daemon.when_ready.unlink()
    os.kill(first, signal.SIGKILL)
    daemon.wait_for("up", 2)
    wait_for(lambda: "when-ready could not be started" in daemon.log)
    daemon.send(signal.SIGTERM)
    assert daemon.end() == 7


def test_one_program_for_a_ready_daemon_runs_at_a_time(supervised: Start) -> None:
    daemon = supervised(restarts=True)
    (first,) = daemon.wait_for("up")
    wait_for((daemon.folder / "ready").exists)
    runs, gate = daemon.folder / "runs", daemon.folder / "gate"
    os.mkfifo(gate)
    daemon.when_ready.write_text(f"#!/bin/sh\necho $$ >>{runs}\nread line <{gate}\n")
    os.kill(first, signal.SIGKILL)
    _, second = daemon.wait_for("up", 2)
    wait_for(lambda: runs.exists() and runs.read_text().endswith("\n"))
    os.kill(second, signal.SIGKILL)
    _, _, third = daemon.wait_for("up", 3)
    os.kill(third, signal.SIGKILL)
    daemon.wait_for("up", 4)
    assert len(runs.read_text().split()) == 1
    gate.write_text("on\n")
    wait_for(lambda: len(runs.read_text().split()) == 2)
    daemon.send(signal.SIGTERM)
    assert daemon.end() == 7
    for helper in runs.read_text().split()[1:]:
        os.kill(int(helper), signal.SIGKILL)


def test_a_daemon_reads_keys_that_have_changed_and_what_it_has_read_is_reported(supervised: Start) -> None:
    daemon = supervised(restarts=True)
    daemon.wait_for("up")

    def reported(*keys: bytes) -> bool:
        found = (daemon.folder / "reported").read_text().split() if daemon.is_reported else []
        return found == [hashlib.sha256(key).hexdigest() for key in keys]

    wait_for(lambda: reported(b"first"))
    project(daemon.keys, {"slurm.jwks": b"first", "slurm.conf": b"another"})
    (daemon.folder / "refuse").touch()
    project(daemon.keys, {"slurm.jwks": b"second", "slurm.conf": b"another"})
    daemon.wait_for("refused")
    assert len(daemon.entries("SIGHUP")) == 1  # not for the slurm.conf alone
    assert reported(b"first")
    (daemon.folder / "refuse").unlink()
    daemon.send(signal.SIGHUP)  # by a reconfigure of slurmctld
    wait_for(lambda: reported(b"first", b"second"))
