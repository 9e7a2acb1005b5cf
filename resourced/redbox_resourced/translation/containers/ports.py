"""Ports that containers declare, and the variables in which the runner puts those that it chooses."""

from __future__ import annotations

from collections.abc import Iterator

from redbox_api.pod_parts import PodEnv
from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported

TCP = frozenset({None, "", "TCP"})


def declared_ports(container: Object, field: str) -> list[int]:
    """Those of TCP: of other protocols no listener can be found in advance."""
    declared = []
    for port in container.get("ports") or ():
        number = port["containerPort"]
        if port.get("hostPort") not in {None, 0, number}:
            raise Unsupported(
                f"{field}.ports[{number}].hostPort: the network is the node's: "
                f"leave it out, or let it be {number}"
            )
        if port.get("protocol") in TCP:
            declared.append(number)
    return declared


def port_variables(pod: Object) -> list[PodEnv]:
    """`PORT` for the first port of a pod with dynamic ports, and `PORT_NAME` for each that has a name."""
    variables: dict[str, PodEnv] = {}
    for part, container in _containers(pod["spec"]):
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                raise Unsupported(
                    f"spec.{part}[{container['name']}].ports[{port['containerPort']}].hostPort: with the "
                    "annotation redbox.dev/dynamic-ports the node's ports are chosen: leave one of them out"
                )
            if port.get("protocol") not in TCP:
                continue
            names = ["PORT", *([_variable(port["name"])] if port.get("name") else [])]
            for name in names:
                variables.setdefault(name, PodEnv(name=name, from_port=port["containerPort"]))
    return list(variables.values())


def _containers(spec: Object) -> Iterator[tuple[str, Object]]:
    for part in ("containers", "initContainers"):
        for container in spec.get(part) or ():
            yield part, container


def _variable(name: str) -> str:
    return f"PORT_{name.upper().replace('-', '_')}"
