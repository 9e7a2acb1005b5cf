"""Ports that the runner chooses: of a pod whose declared ports are not to be taken as they are.

Pods share their node's network, so two with the same port cannot be on one node. A declared port is then
only a name: another one, free on the node, takes its place wherever the pod refers to it.
"""

import os
from typing import Any, Dict, List

from redbox.node.program.listeners import find_listeners
from redbox.runner.program.rules import Document

CHOSEN_FROM = range(20000, 30000)
"""Below the ports that Linux gives to clients (32768), and that Kubernetes gives to Services (30000)."""
HANDLERS = ("startupProbe", "livenessProbe", "readinessProbe", "postStart", "preStop")


def choose_ports(pod: Document) -> Dict[int, int]:
    """Put free ports in the place of those that the pod declares; they are returned by the declared ones."""
    if not pod.get("dynamicPorts"):
        return {}
    specs = [*(pod.get("initContainers") or []), *pod["containers"]]
    chosen: Dict[int, int] = {}
    for spec in specs:
        for port in spec.get("ports") or []:
            if port not in chosen:
                chosen[port] = free_port(list(chosen.values()))
    for spec in specs:
        put_in(spec, chosen)
    return chosen


def put_in(spec: Document, chosen: Dict[int, int]) -> None:
    spec["ports"] = [chosen[port] for port in spec.get("ports") or []]
    for entry in spec.get("env") or []:
        if entry.get("fromPort"):
            entry["value"] = str(chosen[entry["fromPort"]])
    for handler in filter(None, (spec.get(name) for name in HANDLERS)):
        for name in ("httpPort", "tcpPort"):
            if handler.get(name) in chosen:
                handler[name] = chosen[handler[name]]


def free_port(taken: List[int]) -> int:
    """One on which nothing listens now; whether that is still so is checked when its container starts."""
    for _ in CHOSEN_FROM:
        port = CHOSEN_FROM[int.from_bytes(os.urandom(4), "big") % len(CHOSEN_FROM)]
        if port not in taken and not find_listeners(port):
            return port
    raise OSError("No port of {} to {} is free on this node.".format(CHOSEN_FROM[0], CHOSEN_FROM[-1]))


def shown_ports(chosen: Dict[int, int]) -> List[Dict[str, Any]]:
    """As the report has them."""
    return [{"port": port, "nodePort": chosen[port]} for port in sorted(chosen)]
