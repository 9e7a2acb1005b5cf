"""The hook of `helm uninstall` of one cluster: what becomes of its workers before its objects are deleted.

Helm deletes users, red-box and logins with the rest, so workers that have jobs must be gone before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum

from redbox_hosting.api import names
from redbox_kube.api.kinds import POD
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.install.crd_commands import CommandFailed

PAUSE_S = 2.0
ABANDONED = "helm uninstall with uninstall.workers=Abandon"


class WorkersFate(StrEnum):
    """The chart's value `uninstall.workers`."""

    REFUSE = "Refuse"
    DRAIN = "Drain"
    ABANDON = "Abandon"
    KEEP_RUNNING = "KeepRunning"


async def end_workers(
    objects: ObjectClient,
    namespace: str,
    controller: str,
    fate: WorkersFate,
    *,
    say: Callable[[str], None],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Return once nothing of the workers is left, or is to stay; raises CommandFailed."""
    if fate is WorkersFate.KEEP_RUNNING:
        return
    found = await _node_sets(objects, namespace, controller)
    fate = await _asked(objects, namespace, controller) or fate
    if found and fate is WorkersFate.REFUSE:
        listed = ", ".join(f"NodeSet {name}" for name in found)
        raise CommandFailed(
            f"{listed} may have jobs: say what becomes of the workers, and uninstall again: kubectl annotate "
            f"--namespace {namespace} controllers.slurm.redbox.dev {controller} "
            f"{names.ANNOTATION_UNINSTALL}=Drain (they end after their jobs), or =Abandon (with their jobs)"
        )
    for name in found:
        await objects.delete(ResourcePath(names.NODE_SETS, name, namespace), propagationPolicy="Background")
    last = ""
    while found := await _node_sets(objects, namespace, controller):
        workers = await _workers(objects, namespace, controller)
        if fate is WorkersFate.ABANDON:
            for worker in workers:
                await _force(objects, namespace, worker)
        waits = f"waits for the end of {', '.join(_name(worker) for worker in workers) or ', '.join(found)}"
        if waits != last:
            say(waits)
            last = waits
        await pause(PAUSE_S)


async def _asked(objects: ObjectClient, namespace: str, controller: str) -> WorkersFate | None:
    """By an annotation: after an uninstall that was refused, Helm takes no other values."""
    found = await objects.get(ResourcePath(names.CONTROLLERS, controller, namespace)) or {}
    text = ((found.get("metadata") or {}).get("annotations") or {}).get(names.ANNOTATION_UNINSTALL, "")
    return WorkersFate(text) if text in {WorkersFate.DRAIN, WorkersFate.ABANDON} else None


async def _node_sets(objects: ObjectClient, namespace: str, controller: str) -> list[str]:
    return sorted(
        [
            _name(body)
            async for body in objects.list_all(ResourcePath(names.NODE_SETS, namespace=namespace))
            if body.get("spec", {}).get("controllerRef", {}).get("name") == controller
        ]
    )


async def _workers(objects: ObjectClient, namespace: str, controller: str) -> list[Object]:
    return [
        body
        async for body in objects.list_all(ResourcePath(POD, namespace=namespace))
        if (labels := body["metadata"].get("labels", {})).get(names.LABEL_CLUSTER) == controller
        and names.LABEL_NODE_SET in labels
    ]


async def _force(objects: ObjectClient, namespace: str, worker: Object) -> None:
    if names.ANNOTATION_FORCE_DELETE in (worker["metadata"].get("annotations") or {}):
        return
    change = {"metadata": {"annotations": {names.ANNOTATION_FORCE_DELETE: ABANDONED}}}
    await objects.merge(ResourcePath(POD, _name(worker), namespace), change)


def _name(body: Object) -> str:
    return str(body["metadata"]["name"])
