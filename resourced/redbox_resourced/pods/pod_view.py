"""The parts of a pod on a virtual node that resourced needs. Pure.

Ten thousand of them are kept, so a pod is these few fields; of its status only a digest is kept, which shows
whether a status to write differs from the current one. Tenants write pods of a megabyte: what is kept of one
is bounded, and a pod with more than that is refused when it is translated.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from redbox_api.pod_parts import MAX_CONTAINERS
from redbox_clusters.virtual_pods import SUBMITTED, kind_of_job
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import Object, is_path_segment
from redbox_resourced.pods.selection import TimedToleration, names_virtual_node, timed_tolerations
from redbox_resourced.translation.files.live_sources import LiveParts, live_parts
from redbox_resourced.translation.limits import MOST_GATES
from redbox_shared.pod_contract import ATTACH_ONLY, ATTEMPT, MODE

LONGEST_NAME, LONGEST_TEXT = 253, 1024
NUMBER = re.compile(r"[0-9]{1,9}")
A_VERSION = re.compile(r"([a-z0-9.-]+/)?v[a-z0-9]+")
WRITTEN = (
    "phase",
    "reason",
    "message",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
)
ENDED_WORDS = {"reason": 128, "message": 1024, "startedAt": 32, "finishedAt": 32}
CONDITION = ("status", "reason", "message", "lastTransitionTime")
CONDITIONS = frozenset({"Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers", SUBMITTED})
"""Without DisruptionTarget, which others write too: we write it only with a pod's last phase."""
ENDED = frozenset({"Succeeded", "Failed"})


class BoundPodKind(Enum):
    """By the pod's controller, and by whether the pod names virtual nodes."""

    JOB = "job"  # of one of our kinds; `submission` verifies that it is the companion
    POD = "pod"  # any other that names virtual nodes: it runs where the SlurmCluster has pods.enabled
    DAEMON = "daemon"  # of a DaemonSet, which tolerates every taint
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class ControllerRef:
    """The owner that controls a pod."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container of the pod."""

    name: str
    image: str
    is_sidecar: bool = False
    """An init container that runs as long as the pod."""
    has_stdin: bool = False
    has_terminal: bool = False


class EphemeralProblem(NamedTuple):
    """Why an ephemeral container has not begun."""

    reason: str
    message: str
    is_final: bool = False
    """It never will."""


class ShownCondition(NamedTuple):
    """A condition as the pod's status has it."""

    status: str
    since: str


@dataclass(frozen=True, slots=True)
class PodDetails:
    """What the status of a pod that runs depends on, beside its job."""

    init_containers: tuple[PodContainer, ...]
    restart_policy: str
    readiness_gates: tuple[str, ...]
    """Types of conditions that others write, and without which the pod is not ready."""
    conditions: Mapping[str, ShownCondition]
    """Ours and those of the readiness gates, by type."""
    ephemeral_containers: tuple[PodContainer, ...] = ()
    """Of `kubectl debug`."""
    ephemeral_ends: Mapping[str, Object] = field(default_factory=dict)
    """How those ended that the status shows so, by name: the API server lets none of them begin again."""
    ephemeral_problems: Mapping[str, EphemeralProblem] = field(default_factory=dict)
    """Of those that have not begun; not the pod's own words."""
    live: LiveParts | None = None
    """What may change while its job exists."""


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod on a virtual node."""

    namespace: str
    name: str
    uid: str
    node: str
    account: str
    created_at: str
    role: BoundPodKind
    """From its controller and its spec: any user can set labels."""
    key: str
    """The job's key at red-box: the uid of the companion's controller, or of the pod that runs."""
    controller: ControllerRef | None
    attempt: int
    containers: tuple[PodContainer, ...]
    phase: str
    is_submitted: bool
    submitted: str
    """The message of the condition Submitted: which job it is, or why it has no job."""
    is_being_deleted: bool
    ends_by: str
    """Of a pod that is being deleted: when the grace period of its deletion is over."""
    submitted_by_another: bool
    """Its request needs values of Secrets or ConfigMaps, which a submitter pod reads."""
    is_replaced: bool
    """A controller makes another one as soon as it fails, without a pause: a Deployment's, not a Job's."""
    generation: int
    """Of its spec; 0 where the API server does not count it (before 1.33)."""
    timed_tolerations: tuple[TimedToleration, ...]
    """Those that end the pod when resourced is away for long."""
    status_digest: bytes
    main_digest: bytes
    """The same without its details."""
    details: PodDetails | None = None
    """Of a pod that runs; None of a companion, and of a pod that never runs."""

    @property
    def place(self) -> Place:
        return self.namespace, self.name

    @property
    def container_names(self) -> set[str]:
        return {container.name for container in self._all_containers}

    def container(self, name: str) -> PodContainer | None:
        return next((container for container in self._all_containers if container.name == name), None)

    @property
    def _all_containers(self) -> tuple[PodContainer, ...]:
        """Init containers and ephemeral ones too, of a pod that runs."""
        if self.details is None:
            return self.containers
        return (*self.details.init_containers, *self.containers, *self.details.ephemeral_containers)

    @property
    def not_submitted(self) -> str:
        """Why its job was not submitted, where resourced has said so."""
        return "" if self.is_submitted else self.submitted

    @property
    def has_job(self) -> bool:
        """Whether a job at red-box may be its own; `submission` verifies it."""
        return self.role in {BoundPodKind.JOB, BoundPodKind.POD}

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED


def read_pod(pod: Object) -> BoundPod:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    env = [variable for container in spec["containers"] for variable in container.get("env", [])]
    conditions: list[Object] = status.get("conditions", [])
    submitted = next((condition for condition in conditions if condition["type"] == SUBMITTED), {})
    controller = _controller(metadata)
    role = _role(controller, runs=names_virtual_node(pod))
    runs = role is BoundPodKind.POD
    status_digest, shown = digest_of(status), without_details(status)
    return BoundPod(
        namespace=sys.intern(metadata["namespace"]),
        name=metadata["name"],
        uid=metadata["uid"],
        node=sys.intern(spec.get("nodeName", "")),
        account=sys.intern(spec.get("serviceAccountName", "default")),
        created_at=metadata["creationTimestamp"],
        role=role,
        key=metadata["uid"] if runs else controller.uid if controller else "",
        controller=controller,
        attempt=1 if runs else _attempt(env),
        containers=_containers(spec["containers"]),
        phase=sys.intern(status.get("phase", "Pending")),
        is_submitted=submitted.get("status") == "True",
        submitted=submitted.get("message", ""),
        is_being_deleted="deletionTimestamp" in metadata,
        ends_by=metadata.get("deletionTimestamp") or "",
        submitted_by_another=not runs and {"name": MODE, "value": ATTACH_ONLY} in env,
        is_replaced=controller is not None and spec.get("restartPolicy", "Always") == "Always",
        generation=metadata.get("generation") or 0,
        timed_tolerations=timed_tolerations(spec),
        status_digest=status_digest,
        main_digest=digest_of(shown) if shown != status else status_digest,
        details=_details(pod, status, conditions) if runs else None,
    )


def has_job(pod: Object) -> bool:
    """Whether it is a pod of a job: one that is to end before its node may be deleted."""
    return read_pod(pod).role in {BoundPodKind.JOB, BoundPodKind.POD}


def digest_of(status: Object) -> bytes:
    """Of the fields that resourced writes, independent of their order, and of no others."""
    ours: Object = {name: status[name] for name in WRITTEN if status.get(name)}
    ours["conditions"] = {
        condition["type"]: {name: condition[name] for name in CONDITION if condition.get(name)}
        for condition in status.get("conditions", [])
        if condition["type"] in CONDITIONS
    }
    return hashlib.blake2b(json.dumps(ours, sort_keys=True).encode(), digest_size=16).digest()


def without_details(status: Object) -> Object:
    """Without the words about what a container waits for: Slurm's reasons change, and it still waits."""
    shown = [
        {**container, "state": {"waiting": {**container["state"]["waiting"], "message": ""}}}
        if "waiting" in container.get("state", {})
        else container
        for container in status.get("containerStatuses") or ()
    ]
    return {**status, "containerStatuses": shown}


def _details(pod: Object, status: Object, conditions: list[Object]) -> PodDetails:
    spec = pod["spec"]
    given = (spec.get("readinessGates") or ())[:MOST_GATES]
    gates = tuple(sys.intern(gate["conditionType"]) for gate in given)
    return PodDetails(
        init_containers=_containers(spec.get("initContainers")),
        restart_policy=sys.intern(spec.get("restartPolicy", "Always")),
        readiness_gates=gates,
        conditions={
            sys.intern(condition["type"]): ShownCondition(
                sys.intern(condition["status"]), condition.get("lastTransitionTime") or ""
            )
            for condition in conditions
            if condition["type"] in CONDITIONS or condition["type"] in gates
        },
        ephemeral_containers=_containers(spec.get("ephemeralContainers")),
        ephemeral_ends=dict(_ends((status.get("ephemeralContainerStatuses") or ())[:MAX_CONTAINERS])),
        live=live_parts(pod),
    )


def _ends(rows: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    for row in rows:
        if ended := (row.get("state") or {}).get("terminated"):
            words = {name: ended[name][:most] for name, most in ENDED_WORDS.items() if ended.get(name)}
            yield row["name"], {"exitCode": ended.get("exitCode", 0), **words}


def _role(controller: ControllerRef | None, *, runs: bool) -> BoundPodKind:
    if controller is not None:
        if kind_of_job(controller.api_version, controller.kind):
            return BoundPodKind.JOB
        if controller.kind == "DaemonSet":
            return BoundPodKind.DAEMON
    return BoundPodKind.POD if runs else BoundPodKind.FOREIGN


def _controller(metadata: Object) -> ControllerRef | None:
    for owner in metadata.get("ownerReferences", []):
        if owner.get("controller"):
            version, name, uid = owner["apiVersion"], owner["name"], owner["uid"]
            is_too_long = max(map(len, (version, owner["kind"], name, uid))) > LONGEST_NAME
            if is_too_long or not A_VERSION.fullmatch(version) or not is_path_segment(name):
                return None  # no object can have this name, uid or version
            return ControllerRef(sys.intern(version), sys.intern(owner["kind"]), name, uid)
    return None


def _attempt(env: list[Object]) -> int:
    """From the pod's spec, which is immutable; labels are not."""
    value = next((variable.get("value", "") for variable in env if variable["name"] == ATTEMPT), "")
    return int(value) if NUMBER.fullmatch(value) else 1


def _containers(given: Sequence[Object] | None) -> tuple[PodContainer, ...]:
    return tuple(map(_container, (given or ())[:MAX_CONTAINERS]))


def _container(container: Object) -> PodContainer:
    name, image = sys.intern(container["name"]), sys.intern(container.get("image", "")[:LONGEST_TEXT])
    return PodContainer(
        name,
        image,
        container.get("restartPolicy") == "Always",
        has_stdin=bool(container.get("stdin")),
        has_terminal=bool(container.get("tty")),
    )
