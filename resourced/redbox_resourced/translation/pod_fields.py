"""What a container can be given of its own pod: names, labels, resources (the downward API)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.quantities import ceil, parse_quantity

FromNode = Literal["podIP", "podIPs", "hostIP", "hostIPs", "nodeName"]
NODE_FIELDS: dict[str, FromNode] = {
    "spec.nodeName": "nodeName",
    "status.hostIP": "hostIP",
    "status.hostIPs": "hostIPs",
    "status.podIP": "podIP",
    "status.podIPs": "podIPs",
}
SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
ESCAPES = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
CONTAINER_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def pod_field(pod: Object, path: str, field: str) -> str:
    """A field's value, but for those of NODE_FIELDS."""
    metadata, spec = pod["metadata"], pod["spec"]
    if subscript := SUBSCRIPT.fullmatch(path):
        return str((metadata.get(subscript[1]) or {}).get(subscript[2], ""))
    if path in {"metadata.labels", "metadata.annotations"}:
        return _written(metadata.get(path.removeprefix("metadata.")) or {})
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
    }
    if path not in values:
        raise Unsupported(f"{field}.fieldPath: a container cannot be given {path!r}")
    return str(values[path])


def _written(texts: Mapping[str, str]) -> str:
    """Lines of key="value", as kubelets write them."""
    return "\n".join(f"{key}={_quoted(texts[key])}" for key in sorted(texts))


def _quoted(text: str) -> str:
    """As Go's %q."""

    def escaped(character: str) -> str:
        if character in '"\\':
            return f"\\{character}"
        if character in ESCAPES:
            return ESCAPES[character]
        if character.isprintable():
            return character
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004 (Go's own)

    return f'"{"".join(map(escaped, text))}"'


def resource_field(
    pod: Object, chosen: Object, field: str, defaults: Mapping[str, str], container: str = ""
) -> str:
    """A request or a limit of one of the containers, divided and rounded up; `defaults` are for limits."""
    name = chosen.get("containerName") or container
    spec = pod["spec"]
    containers = (*(spec.get("initContainers") or ()), *spec["containers"])
    found = next((each for each in containers if each["name"] == name), None)
    if found is None:
        raise Unsupported(f"{field}.containerName: this pod has no container {name!r}")
    kind, _, resource = str(chosen["resource"]).partition(".")
    if kind not in {"limits", "requests"} or resource not in CONTAINER_RESOURCES:
        raise Unsupported(
            f"{field}.resource: {chosen['resource']!r} is not a limit or a request of "
            f"{', '.join(CONTAINER_RESOURCES)}"
        )
    divisor = parse_quantity(chosen.get("divisor") or "1", f"{field}.divisor") or parse_quantity("1", field)
    resources = found.get("resources") or {}
    limit = (resources.get("limits") or {}).get(resource)
    if kind == "requests":
        amount = (resources.get("requests") or {}).get(resource) or limit or "0"
    else:
        amount = limit or defaults.get(resource)
    if amount is None:
        raise Unsupported(
            f"{field}: container {found['name']} has no limit of {resource}, and what its job will have is "
            "not known before it starts: set the limit"
        )
    return str(ceil(parse_quantity(str(amount), field) / divisor))
