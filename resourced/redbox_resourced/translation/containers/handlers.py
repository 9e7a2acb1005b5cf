"""Probes and lifecycle hooks; named ports become numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redbox_api.pod_parts import PodHandler, PodProbe
from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported, refusals_of

NUMBERS = {
    "initialDelaySeconds": "initial_delay_s",
    "periodSeconds": "period_s",
    "timeoutSeconds": "timeout_s",
    "successThreshold": "success_threshold",
    "failureThreshold": "failure_threshold",
    "terminationGracePeriodSeconds": "termination_grace_s",
}


def probe(given: Object | None, ports: Iterable[Object], field: str) -> PodProbe | None:
    if given is None:
        return None
    numbers = {ours: given[theirs] for theirs, ours in NUMBERS.items() if given.get(theirs)}
    with refusals_of(field):
        return PodProbe(**_action(given, ports, field), **numbers)


def hook(given: Object | None, ports: Iterable[Object], field: str) -> PodHandler | None:
    if given is None:
        return None
    with refusals_of(field):
        return PodHandler(**_action(given, ports, field))


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
