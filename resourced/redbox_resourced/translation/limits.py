"""How much one pod may bring along: resourced, which all tenants share, builds it in memory.

The number of values is checked before anything is read, their bytes while files and variables are made.
"""

from __future__ import annotations

from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported

MOST_VALUES = 1024
MOST_BYTES = 8 * 1024 * 1024
"""Red-box takes at most 5 MiB of files and some 1 MiB of variables of each container."""


class ByteBudget:
    """What is left of a pod's bytes."""

    def __init__(self) -> None:
        self._left = MOST_BYTES

    def spend(self, content: bytes | str | None) -> None:
        """Raises Unsupported."""
        self._left -= len(content or "")
        if self._left < 0:
            raise Unsupported(
                f"spec: its variables and the files of its volumes have more than {MOST_BYTES // 1024**2} "
                "MiB: name fewer keys, or put large files into a claim"
            )


def check_values(spec: Object) -> None:
    """Raises Unsupported."""
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
