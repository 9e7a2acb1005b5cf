"""Workers and their machines, as the pure decisions see them, from objects of the API server. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from redbox_hosting.api import names
from redbox_hosting.build.pods.worker import ROLE
from redbox_hosting.controllers.unstarted_pods import container_of, why_not_started
from redbox_hosting.nodeset.altered import alterations, compared_part
from redbox_hosting.nodeset.observed import PodPhase, WorkerMachine, WorkerPod
from redbox_kube.api.objects import Object

READY = "Ready"
SINCE_ITS_START_S = 1.0
"""The kubelet writes the start and the first Ready=False together, each in whole seconds."""
MACHINE_LOST_AFTER_S = 30.0
"""Of silence: a kubelet that is started again is back before."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
UNKNOWN_ORIGIN = "its annotation created-as is missing"


@dataclass(frozen=True, slots=True)
class PodCondition:
    """Our condition of a pod."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker's pod, with what only the controller of NodeSets reads of it."""

    pod: WorkerPod
    owner: str
    """The uid of its NodeSet."""
    node_set: str
    version: str
    machine_name: str
    revision: str
    pod_format: int
    condemned_at: float | None
    ready_since: float | None
    condition: PodCondition | None
    problem: str
    """Why its container does not start."""
    restarts: int
    image: str = ""
    """Of slurmd."""


def read_worker(body: Object) -> WorkerView:
    """From a pod at the API server. What users write is never the reason to leave a pod out."""
    metadata, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or []}
    container = container_of(body, ROLE)
    owner: Object = next(
        (each for each in metadata.get("ownerReferences") or [] if each["kind"] == "NodeSet"), {}
    )
    ready = conditions.get(READY) or {}
    is_ready, ready_at = ready.get("status") == "True", _time(ready.get("lastTransitionTime"))
    started = _time(status.get("startTime"))
    pod = WorkerPod(
        name=metadata["name"],
        uid=metadata["uid"],
        ordinal=_number(labels.get(names.LABEL_ORDINAL), -1),
        phase=_phase(status.get("phase")),
        is_assigned=bool(spec.get("nodeName")),
        is_ready=is_ready,
        was_ready=is_ready
        or (started is not None and ready_at is not None and ready_at > started + SINCE_ITS_START_S),
        is_ending="deletionTimestamp" in metadata,
        is_protected=labels.get(names.LABEL_PROTECTED) == "true",
        address=str(status.get("podIP") or ""),
        condemned=annotations.get(names.ANNOTATION_CONDEMNED, ""),
        cordon=annotations.get(names.ANNOTATION_CORDON, ""),
        force_delete=annotations.get(names.ANNOTATION_FORCE_DELETE, ""),
        altered=_altered(annotations, body),
        deletion_cost=_number(annotations.get(names.ANNOTATION_DELETION_COST), 0),
        deadline=_time(annotations.get(names.ANNOTATION_DEADLINE)),
        created=_time(metadata.get("creationTimestamp")) or 0.0,
        container_ended=_has_ended(container),
        container_started=_time(((container.get("state") or {}).get("running") or {}).get("startedAt")),
        has_claim=any(_is_own_claim(volume, metadata["name"]) for volume in spec.get("volumes") or []),
    )
    own = conditions.get(names.CONDITION_DRAINING)
    return WorkerView(
        pod=pod,
        owner=str(owner.get("uid", "")),
        node_set=str(owner.get("name", "")),
        version=str(metadata.get("resourceVersion", "")),
        machine_name=str(spec.get("nodeName") or ""),
        revision=labels.get(names.LABEL_REVISION, ""),
        pod_format=_number(labels.get(names.LABEL_POD_FORMAT), 0),
        condemned_at=_time(annotations.get(names.ANNOTATION_CONDEMNED_AT)),
        ready_since=ready_at if is_ready else None,
        condition=own
        and PodCondition(str(own.get("status")), str(own.get("reason", "")), str(own.get("message", ""))),
        problem=why_not_started(body, ROLE),
        restarts=int(container.get("restartCount") or 0),
        image=next(
            (str(each.get("image")) for each in spec.get("containers") or [] if each["name"] == ROLE), ""
        ),
    )


def created_as(manifest: Object) -> str:
    """The annotation that a pod is compared with as long as it lives."""
    return json.dumps(compared_part(manifest), separators=(",", ":"), sort_keys=True)


def machine_of(node: Object | None, now: float, faults: Collection[str] = ()) -> tuple[WorkerMachine, str]:
    """Of a worker that is assigned to it, and the reason of its cordon. None: there is no such Node.

    `faults`: types of conditions that drain its workers while they are True.
    """
    if node is None:
        return WorkerMachine.GONE, ""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    if any(taint.get("key") == OUT_OF_SERVICE for taint in spec.get("taints") or []):
        return WorkerMachine.OFF, ""
    ready = next((each for each in status.get("conditions") or [] if each["type"] == READY), None)
    since = _time((ready or {}).get("lastTransitionTime"))
    if ready and ready.get("status") != "True" and since is not None and now - since >= MACHINE_LOST_AFTER_S:
        return WorkerMachine.LOST, ""
    if spec.get("unschedulable"):
        annotations = node["metadata"].get("annotations") or {}
        return WorkerMachine.CORDONED, str(annotations.get(names.ANNOTATION_NODE_CORDON_REASON, ""))
    found = [
        f"{each['type']} ({each.get('reason', '')}: {each.get('message', '')})"
        for each in status.get("conditions") or []
        if each["type"] in faults and each.get("status") == "True"
    ]
    return (WorkerMachine.FAULTY, ", ".join(found)) if found else (WorkerMachine.WELL, "")


def is_silent(node: Object) -> bool:
    """Whether it is not ready, and may soon count as lost."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each["type"] == READY and each.get("status") != "True" for each in conditions)


def _is_own_claim(volume: Mapping[str, Any], pod: str) -> bool:
    """Of volumeClaimTemplates; all workers may mount another one, such as the users' homes."""
    claim = volume.get("persistentVolumeClaim") or {}
    return str(claim.get("claimName", "")).endswith(f"-{pod}")


def _altered(annotations: Mapping[str, str], body: Object) -> str:
    try:
        wanted = json.loads(annotations.get(names.ANNOTATION_CREATED_AS, ""))
        return ", ".join(alterations(wanted, body))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return UNKNOWN_ORIGIN


def _has_ended(container: Mapping[str, Any]) -> bool:
    """Whether the kubelet shows that it ran and runs no more; `waiting` is a pause after its end."""
    state, last = container.get("state") or {}, container.get("lastState") or {}
    return "terminated" in state or ("waiting" in state and "terminated" in last)


def _phase(text: object) -> PodPhase:
    try:
        return PodPhase(str(text or PodPhase.PENDING))
    except ValueError:
        return PodPhase.UNKNOWN


def _number(text: object, otherwise: int) -> int:
    try:
        return int(str(text))
    except ValueError:
        return otherwise


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except (ValueError, OverflowError):
        return None
