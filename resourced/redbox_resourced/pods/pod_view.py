"""The parts of a pod on a virtual node that resourced needs. Pure.

Ten thousand of them are kept, so a pod is these few fields; of its status only a digest is kept, which shows
whether a status to write differs from the current one.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass
from enum import Enum

from redbox_kube.api.informer import Place
from redbox_kube.api.objects import Object, is_path_segment
from redbox_resourced.pods.selection import TimedToleration, names_virtual_node, timed_tolerations
from redbox_shared.pod_contract import ATTACH_ONLY, ATTEMPT, MODE

NUMBER = re.compile(r"[0-9]{1,9}")
A_VERSION = re.compile(r"([a-z0-9.-]+/)?v[a-z0-9]+")
OUR_GROUPS = frozenset({"redbox.dev", "wlm.sylabs.io", "slurm.sylabs.io"})
OUR_KINDS = frozenset({"SlurmJob", "WlmJob"})
SUBMITTED = "redbox.dev/Submitted"
"""The condition of a companion whose job is at red-box: only resourced writes it."""
WRITTEN = ("phase", "reason", "message", "hostIP", "hostIPs", "startTime", "containerStatuses")
CONDITION = ("status", "reason", "message", "lastTransitionTime")
CONDITIONS = frozenset({"Initialized", "Ready", "ContainersReady", SUBMITTED})
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
    """A container of the pod; none of them ever runs."""

    name: str
    image: str


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod on a virtual node."""

    namespace: str
    name: str
    uid: str
    node: str
    account: str
    created_at: str
    controller: ControllerRef | None
    attempt: int
    containers: tuple[PodContainer, ...]
    phase: str
    is_submitted: bool
    not_submitted: str
    """The message of the condition Submitted, where that is False."""
    is_being_deleted: bool
    submitted_by_another: bool
    """Its request needs values of Secrets or ConfigMaps, which a submitter pod reads."""
    names_virtual_node: bool
    """Its author wants it to run there; see `selection`."""
    timed_tolerations: tuple[TimedToleration, ...]
    """Those that end the pod when resourced is away for long."""
    status_digest: bytes

    @property
    def place(self) -> Place:
        return self.namespace, self.name

    @property
    def key(self) -> str:
        """The job's key at red-box: the uid of the pod's controller."""
        return self.controller.uid if self.controller else ""

    @property
    def role(self) -> BoundPodKind:
        """From its controller and its spec: any user can set labels."""
        if self.controller is not None:
            if self.controller.kind in OUR_KINDS and self.controller.api_version.split("/")[0] in OUR_GROUPS:
                return BoundPodKind.JOB
            if self.controller.kind == "DaemonSet":
                return BoundPodKind.DAEMON
        return BoundPodKind.POD if self.names_virtual_node else BoundPodKind.FOREIGN

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED


def read_pod(pod: Object) -> BoundPod:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    env = [variable for container in spec["containers"] for variable in container.get("env", [])]
    conditions: list[Object] = status.get("conditions", [])
    submitted = next((condition for condition in conditions if condition["type"] == SUBMITTED), {})
    return BoundPod(
        namespace=sys.intern(metadata["namespace"]),
        name=metadata["name"],
        uid=metadata["uid"],
        node=sys.intern(spec.get("nodeName", "")),
        account=sys.intern(spec.get("serviceAccountName", "default")),
        created_at=metadata["creationTimestamp"],
        controller=_controller(metadata),
        attempt=_attempt(env),
        containers=tuple(map(_container, spec["containers"])),
        phase=sys.intern(status.get("phase", "Pending")),
        is_submitted=submitted.get("status") == "True",
        not_submitted=submitted.get("message", "") if submitted.get("status") == "False" else "",
        is_being_deleted="deletionTimestamp" in metadata,
        submitted_by_another={"name": MODE, "value": ATTACH_ONLY} in env,
        names_virtual_node=names_virtual_node(pod),
        timed_tolerations=timed_tolerations(spec),
        status_digest=digest_of(status),
    )


def digest_of(status: Object) -> bytes:
    """Of the fields that resourced writes, independent of their order, and of no others."""
    ours: Object = {name: status[name] for name in WRITTEN if status.get(name)}
    ours["conditions"] = {
        condition["type"]: {name: condition[name] for name in CONDITION if condition.get(name)}
        for condition in status.get("conditions", [])
        if condition["type"] in CONDITIONS
    }
    return hashlib.blake2b(json.dumps(ours, sort_keys=True).encode(), digest_size=16).digest()


def _controller(metadata: Object) -> ControllerRef | None:
    for owner in metadata.get("ownerReferences", []):
        if owner.get("controller"):
            version, name = owner["apiVersion"], owner["name"]
            if not A_VERSION.fullmatch(version) or not is_path_segment(name):
                return None  # no object can have this name or version
            return ControllerRef(sys.intern(version), sys.intern(owner["kind"]), name, owner["uid"])
    return None


def _attempt(env: list[Object]) -> int:
    """From the pod's spec, which is immutable; labels are not."""
    value = next((variable.get("value", "") for variable in env if variable["name"] == ATTEMPT), "")
    return int(value) if NUMBER.fullmatch(value) else 1


def _container(container: Object) -> PodContainer:
    return PodContainer(sys.intern(container["name"]), sys.intern(container.get("image", "")))
