"""The user and the group that a container asks to see itself as."""

from __future__ import annotations

from typing import NamedTuple

from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported

ROOT = 0


class ShownUser(NamedTuple):
    """Numbers inside; None: the Unix user's own."""

    user: int | None
    group: int | None


def shown_user(spec: Object, container: Object, field: str) -> ShownUser:
    """By the container's own security context, else the pod's; one group is all that can be shown."""
    own, pods = container.get("securityContext") or {}, spec.get("securityContext") or {}
    chosen = {**pods, **{name: value for name, value in own.items() if value is not None}}
    user, group = chosen.get("runAsUser"), chosen.get("runAsGroup")
    if chosen.get("runAsNonRoot") and user == ROOT:
        raise Unsupported(f"{field}.securityContext: runAsNonRoot is true and runAsUser is 0: keep one")
    group = pods.get("fsGroup") if group is None else group
    return ShownUser(user, ROOT if group is None and user is not None else group)
