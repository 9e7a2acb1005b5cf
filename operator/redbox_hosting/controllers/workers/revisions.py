"""Revisions of a NodeSet: the fields of the user's that a worker is made of. Pure.

Nothing of the operator's is part of them, so that an upgrade of the operator replaces no worker. A pod has
the revision that it was made of, and the format of the operator that made it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.api.nodeset import NodeSet, ScalingMode
from redbox_kube.api.kinds import CONTROLLER_REVISION
from redbox_kube.api.objects import Object
from redbox_kube.controller.owned import DesiredObject, revision

KEPT_FORMATS = 2


def revised_fields(node_set: NodeSet, homes: str = "") -> Object:
    """What a changed worker is made of. A drain's timeout changes no worker that runs.

    `homes`: the claim that its Controller names.
    """
    spec = node_set.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    fields = ("slurmd", "template", "extraConf", "oversubscribeNode")
    made = {field: spec[field] for field in fields if field in spec}
    if node_set.spec.scaling_mode is ScalingMode.DAEMON_SET:
        made["scalingMode"] = ScalingMode.DAEMON_SET.value
    if node_set.spec.redbox.shm_size is not None:
        made["redbox"] = {"shmSize": str(node_set.spec.redbox.shm_size)}
    return {"spec": made, **({"homes": homes} if homes else {})}


def revision_of(node_set: NodeSet, homes: str = "") -> str:
    return revision(revised_fields(node_set, homes))[:10]


def homes_of(controller: SlurmController | None) -> str:
    """The claim of users' homes, which workers mount; empty without one."""
    homes = controller.spec.redbox.homes if controller else None
    return homes.claim_name if homes else ""


def revision_name(node_set: NodeSet, hashed: str) -> str:
    return f"{node_set.name}-{hashed}"


def revision_object(node_set: NodeSet, others: Iterable[Object], homes: str = "") -> DesiredObject:
    """The ControllerRevision of the newest revision, numbered after the others."""
    hashed = revision_of(node_set, homes)
    number = 1 + max((int(each.get("revision") or 0) for each in others), default=0)
    body: Object = {
        "metadata": {"labels": {names.LABEL_NODE_SET: node_set.name, names.LABEL_REVISION: hashed}},
        "revision": number,
        "data": revised_fields(node_set, homes),
    }
    return DesiredObject(CONTROLLER_REVISION, revision_name(node_set, hashed), body)


def surplus_revisions(
    node_set: NodeSet, revisions: Mapping[str, Object], in_use: Collection[str]
) -> list[Object]:
    """Those that are not in use, beyond the limit; the oldest first."""
    kept = {revision_name(node_set, hashed) for hashed in in_use}
    unused = [body for name, body in revisions.items() if name not in kept]
    unused.sort(key=lambda body: int(body.get("revision") or 0))
    limit = node_set.spec.revision_history_limit
    return unused[: max(len(unused) - limit, 0)]


def is_outdated(revision_of_pod: str, pod_format: int, newest: str) -> bool:
    """Whether the worker would be made differently now."""
    return revision_of_pod != newest or pod_format <= names.POD_FORMAT - KEPT_FORMATS
