"""Why a pod does not start, in the words of Kubernetes. Pure."""

from __future__ import annotations

from redbox_kube.api.objects import Object
from redbox_shared.printable import printable

LONGEST_WORDS = 300
ON_ITS_WAY = frozenset({"ContainerCreating", "PodInitializing"})


def container_of(pod: Object, name: str) -> Object:
    """What the kubelet shows of it; empty before it does."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return next((each for each in statuses if each["name"] == name), {})


def why_not_started(pod: Object, container: str) -> str:
    """Empty if it runs, or is on its way."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    unscheduled = next(
        (each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"), None
    )
    found = unscheduled or (container_of(pod, container).get("state") or {}).get("waiting") or {}
    if found.get("reason") in ON_ITS_WAY:
        return ""
    words = ": ".join(filter(None, (found.get("reason"), found.get("message"))))
    return printable(words[:LONGEST_WORDS])
