"""Hooks, grace periods and termination messages of containers, with a stand-in for Apptainer."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.redbox.runner.harness import LIMIT_S, Node, container, end_of, reasons, state_of


def test_a_post_start_hook_that_fails_ends_the_container(node: Node) -> None:
    hook = {"exec": ["sh", "-c", "echo broken; exit 1"]}
    report = node.run(terminationGraceS=0, containers=[container("a", "sleep 1000", postStart=hook)])
    assert end_of(report, "a") == (137, "Error")
    assert "PostStartHook failed: broken" in [event.message for event in report.events]


def test_a_container_is_ready_once_its_post_start_hook_has_ended(node: Node, tmp_path: Path) -> None:
    """Until then nothing is sent to it, and a liveness probe does not end it."""
    hook = {"exec": ["sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep .05; done; echo > {tmp_path}/warm"]}
    probe = {"exec": ["test", "-e", f"{tmp_path}/warm"], "periodS": 1, "timeoutS": LIMIT_S}
    run = node.start(
        terminationGraceS=0,
        containers=[
            container("a", "sleep 1000", postStart=hook),
            container("b", "sleep 1000", postStart=hook, livenessProbe={**probe, "failureThreshold": 1}),
        ],
    )
    report = run.wait_for(lambda report: all(row.state.running for row in report.containers))
    time.sleep(1.5)
    assert [(row.ready, row.started) for row in run.reports()[-1].containers] == [(False, False)] * 2, report
    (tmp_path / "go").touch()
    report = run.wait_for(lambda report: all(row.ready and row.started for row in report.containers))
    assert "Unhealthy" not in reasons(report, "b")
    run.delete()
    run.wait()


def test_a_message_falls_back_to_the_log_of_a_failed_container(node: Node) -> None:
    report = node.run(containers=[container("a", "echo why; exit 1", messageFromLogs=True)])
    end = state_of(report, "a").state.terminated
    assert end is not None
    assert end.message == "why"


def test_of_a_long_message_the_end_is_the_message(node: Node) -> None:
    """As kubelets read it: what a program wrote last says why it ended."""
    script = f"{{ seq 2000; echo why; }} >$(echo {node.folder}/scratch/*/run/a-0.message)"
    report = node.run(containers=[container("a", script, messagePath="/message")])
    end = state_of(report, "a").state.terminated
    assert end is not None
    assert end.message.endswith("\n2000\nwhy\n")


def test_a_hook_that_sleeps_comes_before_the_signal(node: Node, tmp_path: Path) -> None:
    """Lifecycle Sleep Hook: valid prestop hook using sleep action."""
    trap = f"trap 'touch {tmp_path}/stopped; exit 9' TERM"
    script = f"{trap}; touch {tmp_path}/up; while :; do sleep .05; done"
    run = node.start(containers=[container("a", script, preStop={"sleepS": 1})])
    run.wait_for(lambda _: (tmp_path / "up").exists() and state_of(run.reports()[-1], "a").ready)
    deleted_at = time.time()
    run.delete()
    assert end_of(run.wait(), "a") == (9, "Error")
    assert (tmp_path / "stopped").stat().st_mtime - deleted_at > 0.9


def test_a_cancel_by_slurm_ends_a_pod_before_slurm_does(node: Node) -> None:
    source = node.program.read_bytes().replace(b"KILL_WAIT_S = 25.0", b"KILL_WAIT_S = 2.0")
    node.program.write_bytes(source.replace(b"SLURMS_KILL_WAIT_S = 30.0", b"SLURMS_KILL_WAIT_S = 1000.0"))
    script = "trap : TERM; while :; do sleep .05; done"
    run = node.start(terminationGraceS=1000, containers=[container("a", script)])
    run.wait_for(lambda report: state_of(report, "a").started)
    run.process.send_signal(signal.SIGCONT)
    run.delete()
    assert end_of(run.wait(), "a") == (137, "Error")


def test_a_cancel_by_slurm_leaves_no_more_than_its_own_time(node: Node) -> None:
    """Red-box asked the runner to stop, with a long grace period, and then Slurm to cancel the job."""
    source = node.program.read_bytes()
    assert b"KILL_WAIT_S = 25.0" in source
    node.program.write_bytes(source.replace(b"KILL_WAIT_S = 25.0", b"KILL_WAIT_S = 2.0"))
    script = "trap : TERM; while :; do sleep .05; done"
    side = {**container("side", script), "alwaysRestarts": True}
    run = node.start(terminationGraceS=1000, initContainers=[side], containers=[container("a", script)])
    run.wait_for(lambda report: state_of(report, "a").started)
    run.delete()
    run.wait_for(lambda report: "Killing" in reasons(report, "a"))
    run.delete()  # by another server
    time.sleep(4)
    assert run.process.poll() is None
    run.process.send_signal(signal.SIGCONT)
    run.delete()
    report = run.wait()
    assert [end_of(report, name) for name in ("a", "side")] == [(137, "Error")] * 2
    assert report.stopped
