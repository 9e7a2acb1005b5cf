"""How much one pod may bring along: resourced, which all tenants share, builds it in memory.

The numbers of parts and of values are checked before anything is read, the bytes of values while files and
variables are made. A value without content costs something, too: one ConfigMap may have 160,000 of them.
"""

from __future__ import annotations

from collections.abc import Sized

from redbox_api.pod_parts import MAX_CONTAINERS, MAX_MOUNTS, MAX_VOLUMES
from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported

MOST_VALUES, MOST_GATES = 1024, 64
MOST_BYTES = 8 * 1024 * 1024
"""Red-box takes at most 5 MiB of files and some 1 MiB of variables of each container."""
BYTES_OF_A_VALUE = 256
"""What each takes beside its content: its name, and the objects in which both are."""


class ByteBudget:
    """How many of a pod's bytes are spent."""

    def __init__(self) -> None:
        self.spent = 0

    def spend(self, content: bytes | str | None) -> None:
        """Raises Unsupported."""
        self.spent += len(content or "") + BYTES_OF_A_VALUE
        if self.spent > MOST_BYTES:
            raise Unsupported(
                f"spec: its variables and the files of its volumes have more than {MOST_BYTES // 1024**2} "
                f"MiB, with {BYTES_OF_A_VALUE} bytes for each: name fewer keys, or put large files into a "
                "claim"
            )


def check_sizes(spec: Object) -> None:
    """Raises Unsupported."""
    for part in ("initContainers", "containers"):
        _check_number(spec.get(part), MAX_CONTAINERS, f"spec.{part}")
        for container in spec.get(part) or ():
            field = f"spec.{part}[{container['name']}].volumeMounts"
            _check_number(container.get("volumeMounts"), MAX_MOUNTS, field)
    _check_number(spec.get("volumes"), MAX_VOLUMES, "spec.volumes")
    _check_number(spec.get("readinessGates"), MOST_GATES, "spec.readinessGates")
    _check_values(spec)


def _check_number(parts: Sized | None, most: int, field: str) -> None:
    if parts is not None and len(parts) > most:
        raise Unsupported(f"{field}: there are too many: write at most {most}")


def _check_values(spec: Object) -> None:
    containers = (*(spec.get("initContainers") or ()), *spec["containers"])
    count = sum(map(_values_of_container, containers)) + sum(
        map(_values_of_volume, spec.get("volumes") or ())
    )
    if count > MOST_VALUES:
        raise Unsupported(
            f"spec: it takes {count} values from Secrets, ConfigMaps and fields, and a pod may take "
            f"{MOST_VALUES}: take whole objects by envFrom or as volumes"
        )


def _values_of_container(container: Object) -> int:
    chosen = [variable for variable in container.get("env") or () if variable.get("valueFrom")]
    return len(chosen) + len(container.get("envFrom") or ())


def _values_of_volume(volume: Object) -> int:
    sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
    chosen = [
        source[kind]
        for source in sources
        for kind in ("secret", "configMap", "downwardAPI")
        if source.get(kind)
    ]
    return len(sources) + sum(len(source.get("items") or ()) for source in chosen)
