"""Containers that are added to a pod that runs, as `kubectl debug` does: orders at a real runner's socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redbox.node.program.attachments import (
    ATTACH_BYTES,
    ATTACH_END,
    ATTACH_FOLDER,
    ATTACH_HELLO,
    ATTACH_INPUT,
    ORDERS,
)
from redbox.node.program.joined_namespaces import WAITING, write_waiting
from redbox_api.pod_parts import EphemeralProgram
from redbox_api.pod_report import PodReport
from tests.redbox.runner.harness import LIMIT_S, Node, Run, container, end_of, reasons, state_of
from tests.redbox.runner.test_consoles import Client, open_clients

WAITS = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
ACCEPTED = {"code": 0}


def connected(run: Run) -> socket.socket:
    until = time.monotonic() + LIMIT_S
    while not (paths := list(run.scratch.glob(f"*/{ATTACH_FOLDER}/{ORDERS}"))) and time.monotonic() < until:
        time.sleep(0.02)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(LIMIT_S)
    folder = os.open(paths[0].parent, os.O_RDONLY)
    client.connect(f"/proc/self/fd/{folder}/{ORDERS}")
    os.close(folder)
    return client


def send_order(run: Run, order: bytes) -> dict[str, Any]:
    with connected(run) as client:
        client.send(ATTACH_HELLO + b"{}")
        for start in range(0, len(order), ATTACH_BYTES):
            client.send(ATTACH_INPUT + order[start : start + ATTACH_BYTES])
        client.send(ATTACH_INPUT)
        answer = client.recv(ATTACH_BYTES + 1)
    assert answer[:1] == ATTACH_END
    document: dict[str, Any] = json.loads(answer[1:])
    return document


def add(run: Run, name: str, script: str, **more: Any) -> dict[str, Any]:
    program = EphemeralProgram.model_validate(container(name, script, **more))
    return send_order(run, program.model_dump_json(by_alias=True).encode())


@contextmanager
def running(node: Node, script: str = WAITS, **pod: Any) -> Iterator[Run]:
    images_within_s = pod.pop("images_within_s", 0.0)
    more = {"containers": [container("main", script)], "terminationGraceS": 1, **pod}
    run = node.start(images_within_s=images_within_s, **more)
    try:
        run.wait_for(lambda report: state_of(report, "main").state.running is not None)
        yield run
    finally:
        while open_clients:
            open_clients.pop().socket.close()
        if run.process.poll() is None:
            run.delete()
            run.process.wait(LIMIT_S)


def has_ended(name: str) -> Any:
    def condition(report: PodReport) -> bool:
        rows = [row for row in report.containers if row.name == name]
        return bool(rows) and rows[0].state.terminated is not None

    return condition


def test_its_end_is_not_the_pods_and_it_is_never_started_again(node: Node) -> None:
    with running(node, restartPolicy="Always") as run:
        assert add(run, "debug", "echo here; exit 3") == ACCEPTED
        report = run.wait_for(has_ended("debug"))
        assert end_of(report, "debug") == (3, "Error")
        assert state_of(report, "debug").kind == "ephemeral"
        assert run.log("debug") == "here\n"
        run.delete()
        report = run.wait()
        assert state_of(report, "debug").restart_count == 0
        assert end_of(report, "main") == (0, "Completed")
        assert run.process.returncode == 143  # of the deletion alone


def test_one_of_a_name_is_begun_once_however_often_it_is_ordered(node: Node) -> None:
    with running(node) as run:
        for _ in range(3):
            assert add(run, "debug", "echo here") == ACCEPTED
        report = run.wait_for(has_ended("debug"))
        assert reasons(report, "debug").count("Started") == 1
        assert run.log("debug") == "here\n"


def test_the_report_has_it_before_the_order_is_answered(node: Node) -> None:
    with running(node) as run:
        assert run.reports()[-1].settled
        add(run, "debug", WAITS)
        lines = run.reports()
        assert [row.name for row in lines[-1].containers] == ["main", "debug"]
        run.wait_for(lambda report: state_of(report, "debug").state.running is not None)
        assert not run.reports()[-1].settled
        add(run, "second", "true")
        assert not run.wait_for(has_ended("second")).settled


def test_a_target_shows_its_processes_and_files(node: Node) -> None:
    lines = "tr '\\0' '\\n' </proc/1/"
    script = f"{lines}cmdline; ls -d /proc/1/root/etc; {lines}environ | grep OWN"
    main = container("main", WAITS, env=[{"name": "OWN", "value": "target"}])
    with running(node, containers=[main]) as run:
        assert add(run, "debug", script, target="main", env=[{"name": "OWN", "value": "mine"}]) == ACCEPTED
        report = run.wait_for(has_ended("debug"))
        assert end_of(report, "debug") == (0, "Completed"), run.log("debug")
        assert run.log("debug").splitlines() == ["sh", "-c", WAITS, "/proc/1/root/etc", "OWN=target"]
        run.delete()
        run.wait()


def test_its_own_variables_arguments_and_code_are_kept_beside_a_target(node: Node) -> None:
    with running(node) as run:
        script = "echo $A $REDBOX_CONTAINER; pwd; exit 7"
        add(run, "debug", script, target="main", env=[{"name": "A", "value": "b c"}], workingDir="/usr")
        assert end_of(run.wait_for(has_ended("debug")), "debug") == (7, "Error")
        assert run.log("debug").splitlines() == ["b c debug", "/usr"]
        add(run, "absent", "", command=["no-such-program"], target="main")
        report = run.wait_for(has_ended("absent"))
        assert end_of(report, "absent") == (128, "StartError")
        assert "no-such-program" in str(state_of(report, "absent").state.terminated)


def test_a_terminal_beside_a_target(node: Node) -> None:
    with running(node) as run:
        prompt = [{"name": "PS1", "value": "next: "}]
        console: dict[str, Any] = {"stdin": True, "stdinOnce": True, "tty": True, "env": prompt}
        add(run, "debug", "", command=["sh"], target="main", **console)
        run.wait_for(lambda report: state_of(report, "debug").state.running is not None)
        client = Client(run, "debug")
        client.type(b"sh -c 'cat /proc/1/comm; exec cat'\n")  # one process, which Ctrl-C finds at any moment
        client.read_until(b"sh\r\n")
        client.type(b"\x03")  # for the program in the foreground, and for nothing that holds the container
        client.read_until(b"next: ")
        client.type(b"echo on$((1 + 1))\n")
        client.read_until(b"on2")
        client.type(b"exit 5\n")
        assert client.rest()[1] == ACCEPTED
        assert end_of(run.wait_for(has_ended("debug")), "debug") == (5, "Error")


def test_nothing_of_it_is_left_behind_beside_its_target(node: Node) -> None:
    with running(node) as run:
        add(run, "debug", "sleep 12345.6 & sleep 0.2", target="main")
        run.wait_for(has_ended("debug"))
        commands = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        assert "sleep 12345.6" not in commands
        assert f"{node.folder}/scratch" not in commands  # where the program is that has waited
        assert state_of(run.reports()[-1], "main").state.running is not None


def test_the_end_of_its_target_is_its_own(node: Node) -> None:
    ends = node.folder / "ends"
    script = f"while [ ! -e {ends} ]; do sleep 0.05; done; rm {ends}"
    with running(node, script, restartPolicy="Always") as run:
        add(run, "debug", "exec sleep 60", target="main")
        run.wait_for(lambda report: state_of(report, "debug").state.running is not None)
        ends.touch()
        assert end_of(run.wait_for(has_ended("debug")), "debug")[0] == 128 + signal.SIGKILL
        run.wait_for(lambda report: state_of(report, "main").restart_count == 1)


def test_a_target_that_does_not_run_is_waited_for(node: Node) -> None:
    with running(node) as run:
        assert add(run, "debug", "true", target="other") == ACCEPTED
        report = run.wait_for(lambda report: "CreateContainerConfigError" in str(state_of(report, "debug")))
        assert "unable to find target container other" in str(state_of(report, "debug").state.waiting)
        run.delete()  # which does not wait for it
        run.wait()


def test_a_bad_image_ends_nothing(node: Node) -> None:
    with running(node, images_within_s=0.01) as run:
        assert add(run, "debug", "true", image="docker://nowhere:1") == ACCEPTED
        run.wait_for(lambda report: "ImagePullBackOff" in str(state_of(report, "debug")))
        report = run.reports()[-1]
        assert (report.reason, state_of(report, "main").state.terminated) == ("", None)
        run.delete()
        assert end_of(run.wait(), "main") == (0, "Completed")


def test_it_ends_with_the_pod(node: Node) -> None:
    ends = node.folder / "ends"
    with running(node, f"while [ ! -e {ends} ]; do sleep 0.05; done") as run:
        add(run, "debug", "trap '' TERM; while :; do sleep 0.1; done", target="main")
        add(run, "own", "trap 'exit 9' TERM; sleep 60 & wait")
        names = ("debug", "own")
        run.wait_for(lambda report: all(state_of(report, name).state.running for name in names))
        ends.touch()
        report = run.wait()
        assert run.process.returncode == 0
        assert end_of(report, "main") == (0, "Completed")
        assert end_of(report, "own")[0] == 9
        assert end_of(report, "debug")[0] == 128 + signal.SIGKILL


def test_two_at_the_same_time_run_beside_each_other(node: Node) -> None:
    with running(node) as run:
        for name in ("one", "two"):
            add(run, name, "exec tail -f /dev/null", target="main")
        script = "while [ $(grep -l ^tail /proc/[0-9]*/comm | wc -l) -lt 2 ]; do sleep 0.1; done"
        add(run, "three", script, target="main")
        assert end_of(run.wait_for(has_ended("three")), "three") == (0, "Completed")


@pytest.mark.parametrize("order", [b"", b"no json", b"[]", b"{}", b'{"name": "main"}', b"\xff"])
def test_what_is_no_order_is_refused_and_changes_nothing(node: Node, order: bytes) -> None:
    with running(node) as run:
        assert send_order(run, order)["reason"] == "Refused"
        assert add(run, "debug", "true") == ACCEPTED
        run.wait_for(has_ended("debug"))


def test_more_than_so_many_are_refused(node: Node) -> None:
    program = node.program.read_text()
    node.program.write_text(program.replace("MOST_EPHEMERAL = 32", "MOST_EPHEMERAL = 1"))
    with running(node) as run:
        assert add(run, "debug", "true") == ACCEPTED
        assert "can have 1 ephemeral" in add(run, "second", "true")["message"]


def test_the_program_that_waits_does_so_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "waiting"
    assert write_waiting(str(path), os.uname().machine)
    process = subprocess.Popen([path])
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not write_waiting(str(path), "vax")
    assert set(WAITING) == {"x86_64", "aarch64"}
