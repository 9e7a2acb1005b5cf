"""The last lines of a container's log."""

from __future__ import annotations

from redbox_kube.api.kinds import POD
from redbox_kube.api.objects import ObjectClient, ResourcePath

MOST_BYTES = 256 * 1024


async def log_tail(objects: ObjectClient, namespace: str, pod: str, container: str, *, lines: int) -> str:
    """Raises ApiRefused where there is no such container, or none of it has started."""
    where = ResourcePath(POD, pod, namespace)
    query = {"container": container, "tailLines": str(lines), "limitBytes": str(MOST_BYTES)}
    return (await objects.answer("GET", where.path("log"), query=query)).decode(errors="replace")
