"""Ports that the runner chooses in the place of those that a pod declares."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest

from redbox.node.program.listeners import CHOSEN_FROM
from tests.redbox.runner.harness import Node, container, end_of, reasons, state_of

SERVES = f"exec {sys.executable} -m http.server --bind 127.0.0.1 $PORT_WEB"
ENV = [{"name": "PORT", "fromPort": 8080}, {"name": "PORT_WEB", "fromPort": 8080}]


def pod(script: str, port: int = 8080, **more: Any) -> dict[str, Any]:
    env = [{**entry, "fromPort": port} for entry in ENV]
    return {"dynamicPorts": True, "containers": [container("web", script, ports=[port], env=env, **more)]}


def test_a_pod_gets_a_free_port_where_its_own_is_taken(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        run = node.start(**pod('echo "$PORT $PORT_WEB"', taken))
        report = run.wait()
    (port, same) = run.log("web").split()
    assert end_of(report, "web") == (0, "Completed")
    assert port == same
    assert report.chosen_ports == {taken: int(port)}
    assert int(port) in CHOSEN_FROM
    assert "PortsChosen" in [event.reason for event in report.events]


def test_probes_of_the_declared_port_reach_the_chosen_one(node: Node) -> None:
    probe = {"httpPort": 8080, "httpHost": "127.0.0.1", "periodS": 1}
    run = node.start(**pod(SERVES, readinessProbe=probe))
    report = run.wait_for(lambda report: state_of(report, "web").ready)
    assert list(report.chosen_ports) == [8080]
    run.delete()
    run.wait()


def test_an_argument_can_have_the_port(node: Node) -> None:
    made = pod("")
    made["containers"][0].update(command=["echo", "--port=$(PORT)"])
    run = node.start(**made)
    report = run.wait()
    assert run.log("web") == f"--port={report.chosen_ports[8080]}\n"


def test_without_the_wish_a_port_is_what_was_declared(node: Node) -> None:
    report = node.run(containers=[container("a", "true", ports=[8080])])
    assert report.ports == []
    assert "PortsChosen" not in reasons(report, "")


@pytest.mark.parametrize("words", ["bind: Address already in use", "listen EADDRINUSE :::80", "all is well"])
def test_a_server_that_finds_its_port_taken_has_an_event_with_the_cure(node: Node, words: str) -> None:
    report = node.run(containers=[container("a", f"echo {words!r} >&2; exit 1")])
    assert ("PortInUse" in reasons(report, "a")) is (words != "all is well")
    message = next((event.message for event in report.events if event.reason == "PortInUse"), "")
    assert not message or ("the network is the node's own" in message and "dynamic-ports" in message)


def test_nothing_is_said_of_a_server_that_ended_well(node: Node) -> None:
    report = node.run(containers=[container("a", "echo Address already in use")])
    assert "PortInUse" not in reasons(report, "a")
