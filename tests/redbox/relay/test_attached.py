"""A real relay that attaches to the container of a real runner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redbox.relay.program import frames
from redbox.relay.program.frames import CREDIT_BYTES, DATA
from redbox_api.pod_report import PodReport
from tests.redbox.relay.harness import RelayProcess, started
from tests.redbox.runner.harness import LIMIT_S, Node, Run, container, end_of, state_of

JOB = "4711"
LOOKS = "trap 'stty size' WINCH; echo ready; while :; do read x || :; done"
SCRIPT = "echo ready; while read x; do echo got $x; done; echo over >&2; seq 300000"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A pod whose container `a` has stdin, and `b` has a terminal; `c` has neither."""
    probe = ["unshare", "-Umipf", "--map-root-user", "--mount-proc", "true"]
    if subprocess.run(probe, check=False, capture_output=True).returncode:
        pytest.skip("no namespaces can be made here")
    node = Node(tmp_path)
    node.start_by = ["env", f"SLURM_JOB_ID={JOB}"]
    run = node.start(
        containers=[
            container("a", SCRIPT, stdin=True, stdinOnce=True),
            container("b", LOOKS, stdin=True, tty=True),
            container("c", "exec sleep 613.5"),
        ],
        terminationGraceS=0,
    )
    run.wait_for(lambda report: all(state_of(report, name).state.running for name in "abc"))
    run.wait_for(lambda _: "ready" in run.log("b"))
    yield run
    run.delete()
    run.process.wait(LIMIT_S)


def attach(relay: RelayProcess, stream: int, name: str = "a", **more: Any) -> None:
    relay.open(stream, kind="attach", job=JOB, container=name, **more)


def has_ended(report: PodReport) -> bool:
    return state_of(report, "a").state.terminated is not None


def read_until(relay: RelayProcess, wanted: bytes) -> bytes:
    found = b""
    while wanted not in found:
        frame = relay.receive()
        found += frame.payload[1:] if frame.kind == DATA else b""
    return found


def test_input_output_and_the_end_of_both(run: Run) -> None:
    with started() as relay:
        attach(relay, 1)
        read_until(relay, b"ready\n")
        relay.send(DATA, 1, b"\0one\n")
        read_until(relay, b"got one\n")
        # Each is more than a message of the runner's has; together they are granted again.
        pieces = frames.INPUT_WINDOW // 2 // frames.MAX_DATA
        for _ in range(pieces):
            relay.send(DATA, 1, b"\0" + b"x" * frames.MAX_DATA)
        relay.send(DATA, 1, b"\0\n")
        relay.send(frames.CLOSE, 1, b"\0")
        read, granted = b"", []
        while (frame := relay.receive()).kind != frames.STATUS:
            if frame.kind == frames.CREDIT:
                granted.append(frames.read_credit(frame.payload))
            elif frame.kind == DATA:
                read += frame.payload[1:]
                relay.send(frames.CREDIT, 1, CREDIT_BYTES.pack(frames.data_cost(len(frame.payload) - 1)))
        assert json.loads(frame.payload) == {"code": 0}
        assert granted == [frames.data_cost(4) + pieces * frames.data_cost(frames.MAX_DATA)]  # not of each
        log = run.log("a")
        assert sorted(("ready\ngot one\n" + read.decode()).splitlines()) == sorted(log.splitlines())
        assert end_of(run.wait_for(has_ended), "a") == (0, "Completed")


def test_a_terminal_is_resized_and_left(run: Run) -> None:
    with started() as relay:
        attach(relay, 1, "b", tty=True, size={"columns": 80, "rows": 24})
        relay.send(frames.RESIZE, 1, frames.order_bytes({"columns": 101, "rows": 33}))
        read_until(relay, b"33 101\r\n")
        relay.send(frames.KILL, 1)
        attach(relay, 2, "b", tty=True, size={"columns": 101, "rows": 33})
        read_until(relay, b"33 101\r\n")
        relay.process.kill()
    assert state_of(run.reports()[-1], "b").state.running is not None


@pytest.mark.usefixtures("run")
def test_what_cannot_be_attached_to_is_one_sentence() -> None:
    with started() as relay:
        for stream, (name, job) in enumerate((("c", JOB), ("a", "4712"), ("nothing", JOB)), 1):
            relay.open(stream, kind="attach", job=job, container=name)
            status = relay.until_status(stream)[1]
            assert status["reason"] == "CannotStart"
            assert f"Container {name} has no stdin and no terminal" in status["message"]


HOLDER = """
import os, socket, sys, time
folder = os.open(sys.argv[1], os.O_RDONLY)
if os.fork() == 0:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(sys.argv[1] + "/attach/x")
    os.close(folder)
    listener.listen(1)
    print("ready", flush=True)
time.sleep(614)
"""


def test_a_listener_that_is_not_the_folders_holder_gets_no_keys(tmp_path: Path) -> None:
    folder = tmp_path / "redbox-pod-imitated"
    (folder / "attach").mkdir(parents=True)
    environment = {**os.environ, "SLURM_JOB_ID": JOB}
    argv = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, start_new_session=True) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            with started() as relay:
                relay.open(1, kind="attach", job=JOB, container="x")
                assert relay.until_status(1)[1]["reason"] == "CannotStart"
        finally:
            os.killpg(holder.pid, signal.SIGKILL)


def order(relay: RelayProcess, stream: int, name: str, job: str = JOB, **more: Any) -> dict[str, Any]:
    document = json.dumps({**container(name, "echo added", **more), "image": "docker://box:1"})
    relay.open(stream, kind="order", job=job, order=document)
    return relay.until_status(stream)[1]


def test_an_order_reaches_the_runner_whatever_its_size(run: Run) -> None:
    with started() as relay:
        env = [{"name": f"V{number}", "value": "v" * 1000} for number in range(100)]
        assert order(relay, 1, "debug", env=env) == {"code": 0}
        run.wait_for(lambda report: "debug" in [row.name for row in report.containers])
        refused = order(relay, 2, "a")
        assert (refused["reason"], "of its own" in refused["message"]) == ("Refused", True)
        elsewhere = order(relay, 3, "debug", job="4712")
        assert (elsewhere["reason"], "does not take orders" in elsewhere["message"]) == ("CannotStart", True)
