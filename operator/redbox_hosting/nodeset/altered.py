"""What others changed in a worker's pod on its way through the API server, or later. Pure.

Admission plugins inject containers and change limits; then the node's size in Slurm is not the pod's, and
such a node is not resumed. Defaults that the API server adds change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redbox_hosting.build.config.node_conf import BadSize, quantity

Manifest = dict[str, Any]
OF_CONTAINER = ("args", "command", "lifecycle", "resources", "securityContext")
"""Not the image: registries are often mirrored, and tags resolved to digests."""
OF_POD = (
    *("activeDeadlineSeconds", "hostNetwork", "hostPID", "hostname", "restartPolicy", "subdomain"),
    "terminationGracePeriodSeconds",
)
"""A deadline may be given to a pod that runs, and ends it with its jobs."""


def compared_part(manifest: Manifest) -> Manifest:
    """The fields of a pod that `alterations` looks at."""
    spec = manifest["spec"]
    part = {field: spec[field] for field in OF_POD if field in spec}
    for kind in ("initContainers", "containers"):
        part[kind] = [
            {field: each[field] for field in ("name", *OF_CONTAINER) if field in each}
            for each in spec.get(kind) or []
        ]
    return {"spec": part}


def alterations(wanted: Manifest, live: Manifest) -> list[str]:
    """The fields of the pod's spec that differ from what the operator created, by name."""
    return [*_alterations(wanted["spec"], live["spec"])]


def _alterations(wanted: Manifest, live: Manifest) -> Iterator[str]:
    for field in OF_POD:
        if not _holds(wanted.get(field), live.get(field)):
            yield field
    for kind in ("initContainers", "containers"):
        ours = {each["name"]: each for each in wanted.get(kind) or []}
        theirs = {each["name"]: each for each in live.get(kind) or []}
        yield from (f"{kind}: {name} was added" for name in theirs.keys() - ours.keys())
        yield from (f"{kind}: {name} is missing" for name in ours.keys() - theirs.keys())
        for name in sorted(ours.keys() & theirs.keys()):
            for field in OF_CONTAINER:
                if not _holds(ours[name].get(field), theirs[name].get(field)):
                    yield f"{name}: {field}"


def _holds(wanted: object, live: object) -> bool:
    """Whether the live value has all of the wanted one. Quantities may be written in another way."""
    if wanted is None:
        return not live
    if isinstance(wanted, dict) and isinstance(live, dict):
        return all(_holds(value, live.get(key)) for key, value in wanted.items())
    if isinstance(wanted, int | str) and isinstance(live, int | str):
        return wanted == live or _same_quantity(str(wanted), str(live))
    return wanted == live


def _same_quantity(wanted: str, live: str) -> bool:
    try:
        return quantity(wanted) == quantity(live)
    except BadSize:
        return False
