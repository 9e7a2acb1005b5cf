"""Strategic merge of what users write into an object that the operator makes. Pure.

A value that is given wins, also `false`, 0 and an empty text. Lists of named items are merged by their key,
other lists are replaced, and null removes a field. The handler of a probe replaces the one that was there.
"""

from __future__ import annotations

from typing import Any

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
}
"""As in the API's types. `ports` has a second key, protocol, and is merged by both."""
HANDLERS = frozenset({"exec", "httpGet", "tcpSocket", "grpc"})
"""Of probes and hooks, which have one of them."""
APPENDED = frozenset({"tolerations"})
"""Those that the operator sets keep a worker on its node."""


def strategic_merge(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A new object; neither of the two is changed."""
    made = {key: value for key, value in base.items() if key not in HANDLERS or not HANDLERS & patch.keys()}
    for key, value in patch.items():
        before = made.get(key)
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict) and isinstance(before, dict):
            made[key] = strategic_merge(before, value)
        elif isinstance(value, list) and isinstance(before, list):
            made[key] = _merged_list(key, before, value)
        else:
            made[key] = value
    return made


def _merged_list(name: str, base: list[Any], patch: list[Any]) -> list[Any]:
    if name in APPENDED:
        return [*base, *(item for item in patch if item not in base)]
    if name != "ports" and name not in MERGE_KEYS:
        return patch
    made = {_key(name, item): item for item in base}
    for item in patch:
        key = _key(name, item)
        made[key] = strategic_merge(made[key], item) if key in made else item
    return list(made.values())


def _key(name: str, item: dict[str, Any]) -> object:
    if name == "ports":
        port = item.get("containerPort", item.get("port"))
        return port, item.get("protocol", "TCP")
    return item.get(MERGE_KEYS[name])
