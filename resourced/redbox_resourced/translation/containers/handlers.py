"""Probes and lifecycle hooks; named ports become numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from redbox_api.pod_parts import PodHandler, PodProbe
from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import CURES, Unsupported, refusals_of
from redbox_resourced.translation.limits import ByteBudget

LONGEST_WORD = 128 * 1024
"""Of a command: Linux's MAX_ARG_STRLEN."""
REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")
NUMBERS = {
    "initialDelaySeconds": "initial_delay_s",
    "periodSeconds": "period_s",
    "timeoutSeconds": "timeout_s",
    "successThreshold": "success_threshold",
    "failureThreshold": "failure_threshold",
    "terminationGracePeriodSeconds": "termination_grace_s",
}
ACTIONS = {
    "exec": "exec.command",
    "http_port": "httpGet.port",
    "http_path": "httpGet.path",
    "http_host": "httpGet.host",
    "http_headers": "httpGet.httpHeaders",
    "tcp_port": "tcpSocket.port",
    "grpc_port": "grpc.port",
    "grpc_service": "grpc.service",
    "sleep_s": "sleep.seconds",
}
PATHS = {**ACTIONS, **{ours: theirs for theirs, ours in NUMBERS.items()}}
"""Of Kubernetes, by the field of the request."""


def probe(given: Object | None, container: Object, field: str, budget: ByteBudget) -> PodProbe | None:
    """Of a probe's command, and not of a hook's, kubelets expand `$(NAME)`."""
    if given is None:
        return None
    action = _action(given, container.get("ports") or (), field)
    if command := action.get("exec"):
        action["exec"] = list(_expanded(command, container, f"{field}.exec.command", budget))
    numbers = {ours: given[theirs] for theirs, ours in NUMBERS.items() if given.get(theirs)}
    with refusals_of(field, _paths(field)):
        return PodProbe(**action, **numbers)


def _expanded(command: Iterable[str], container: Object, field: str, budget: ByteBudget) -> Iterator[str]:
    """With the literal values as they are written; a variable from elsewhere is empty, as for kubelets.

    A word of a megabyte may name a value of a hundred kilobytes at each fourth character: its length is
    known before it is made.
    """
    values = {variable["name"]: variable.get("value") or "" for variable in container.get("env") or ()}
    for number, word in enumerate(command):
        pieces = list(_pieces(word, values))
        if sum(map(len, pieces)) > LONGEST_WORD:
            cure = CURES["string_too_long"].format(max_length=LONGEST_WORD)
            raise Unsupported(f"{field}[{number}]: {cure}")
        expanded = "".join(pieces)
        budget.spend(expanded)
        yield expanded


def _pieces(word: str, values: Mapping[str, str]) -> Iterator[str]:
    """Looks at each character once: behind the last `)` nothing is named."""
    at, end = 0, word.rfind(")") + 1
    for found in REFERENCE.finditer(word, 0, end):
        yield word[at : found.start()]
        yield "$" if found[1] else values.get(found[2], found[0])
        at = found.end()
    yield word[at:end]
    yield word[end:].replace("$$", "$")


def hook(given: Object | None, container: Object, field: str) -> PodHandler | None:
    if given is None:
        return None
    with refusals_of(field, _paths(field)):
        return PodHandler(**_action(given, container.get("ports") or (), field))


def _paths(field: str) -> dict[str, str]:
    return {ours: f"{field}.{theirs}" for ours, theirs in PATHS.items()}


def _action(given: Object, ports: Iterable[Object], field: str) -> dict[str, Any]:
    if (command := given.get("exec")) is not None:
        return {"exec": command.get("command") or []}
    if (request := given.get("httpGet")) is not None:
        return {
            "http_port": _port(request.get("port"), ports, f"{field}.httpGet"),
            "http_path": f"/{(request.get('path') or '').removeprefix('/')}",
            "http_host": request.get("host") or "",
            "https": request.get("scheme") == "HTTPS",
            "http_headers": [
                {"name": header["name"], "value": header.get("value") or ""}
                for header in request.get("httpHeaders") or ()
            ],
        }
    if (socket := given.get("tcpSocket")) is not None:
        return {"tcp_port": _port(socket.get("port"), ports, f"{field}.tcpSocket")}
    if (call := given.get("grpc")) is not None:
        return {"grpc_port": call.get("port"), "grpc_service": call.get("service") or ""}
    if (sleep := given.get("sleep")) is not None:
        return {"sleep_s": sleep.get("seconds") or 0}
    raise Unsupported(f"{field}: it has no action")


def _port(given: object, ports: Iterable[Object], field: str) -> int:
    if isinstance(given, int):
        return given
    if isinstance(given, str) and given.isdecimal():
        return int(given)
    for port in ports:
        if given and port.get("name") == given:
            return int(port["containerPort"])
    raise Unsupported(f"{field}.port: this container declares no port with the name {given!r}")
