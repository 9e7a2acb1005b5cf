"""A pod that is bound to one of our nodes, as much of it as is needed. Pure.

Ten thousand of them are kept, so a pod is held as these few fields; of its status there is a digest, which
tells whether what we would write is what is there.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass
from enum import Enum
from typing import Any

from redbox_kube.api.objects import can_be_called
from redbox_shared.pod_contract import ATTACH_ONLY, ATTEMPT, MODE

Object = dict[str, Any]

NUMBER = re.compile(r"[0-9]{1,9}")
A_VERSION = re.compile(r"([a-z0-9.-]+/)?v[a-z0-9]+")
OUR_GROUPS = frozenset({"redbox.dev", "wlm.sylabs.io", "slurm.sylabs.io"})
OUR_KINDS = frozenset({"SlurmJob", "WlmJob"})
SUBMITTED = "redbox.dev/Submitted"
"""The condition by which a pod is known to be a companion whose job is at red-box: only we write it."""
WRITTEN = ("phase", "reason", "message", "hostIP", "hostIPs", "startTime", "containerStatuses")
CONDITION = ("status", "reason", "message", "lastTransitionTime")
CONDITIONS = frozenset({"Initialized", "Ready", "ContainersReady", SUBMITTED})
ENDED = frozenset({"Succeeded", "Failed"})


class Role(Enum):
    """What a pod is to us."""

    JOB = "job"  # its controller is one of our kinds; whether it is the companion is for `submission` to say
    DAEMON = "daemon"  # a DaemonSet's, which tolerates every taint
    STRANGER = "stranger"


@dataclass(frozen=True, slots=True)
class Controller:
    """The object that a pod belongs to."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Container:
    """One of the pod's containers; none of them ever runs."""

    name: str
    image: str


@dataclass(frozen=True, slots=True)
class BoundPod:
    """One pod on one of our nodes."""

    namespace: str
    name: str
    uid: str
    node: str
    account: str
    created_at: str
    controller: Controller | None
    attempt: int
    containers: tuple[Container, ...]
    phase: str
    is_submitted: bool
    not_submitted: str
    """Why it is not, as far as the pod says."""
    is_being_deleted: bool
    submitted_by_another: bool
    """Its request needs values of Secrets or ConfigMaps: a submitter pod reads them, we only follow."""
    seen: bytes
    """The digest of its status."""

    @property
    def role(self) -> Role:
        """By its controller alone: labels are for everybody to set."""
        if self.controller is None:
            return Role.STRANGER
        if self.controller.kind in OUR_KINDS and self.controller.api_version.split("/")[0] in OUR_GROUPS:
            return Role.JOB
        return Role.DAEMON if self.controller.kind == "DaemonSet" else Role.STRANGER

    @property
    def has_ended(self) -> bool:
        """Its phase is final, so it is left alone."""
        return self.phase in ENDED


def read_pod(pod: Object) -> BoundPod:
    """As the API server shows it."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    env = [one for container in spec["containers"] for one in container.get("env", [])]
    conditions: list[Object] = status.get("conditions", [])
    submitted = next((one for one in conditions if one["type"] == SUBMITTED), {})
    return BoundPod(
        namespace=sys.intern(metadata["namespace"]),
        name=metadata["name"],
        uid=metadata["uid"],
        node=sys.intern(spec.get("nodeName", "")),
        account=sys.intern(spec.get("serviceAccountName", "default")),
        created_at=metadata["creationTimestamp"],
        controller=_controller(metadata),
        attempt=_attempt(env),
        containers=tuple(_container(one) for one in spec["containers"]),
        phase=sys.intern(status.get("phase", "Pending")),
        is_submitted=submitted.get("status") == "True",
        not_submitted=submitted.get("message", "") if submitted.get("status") == "False" else "",
        is_being_deleted="deletionTimestamp" in metadata,
        submitted_by_another={"name": MODE, "value": ATTACH_ONLY} in env,
        seen=digest_of(status),
    )


def digest_of(status: Object) -> bytes:
    """Of what we write in a status, in whatever order it is, and of nothing else."""
    ours: Object = {name: status[name] for name in WRITTEN if status.get(name)}
    conditions = (one for one in status.get("conditions", []) if one["type"] in CONDITIONS)
    ours["conditions"] = {
        one["type"]: {name: one[name] for name in CONDITION if one.get(name)} for one in conditions
    }
    return hashlib.blake2b(json.dumps(ours, sort_keys=True).encode(), digest_size=16).digest()


def _controller(metadata: Object) -> Controller | None:
    for owner in metadata.get("ownerReferences", []):
        if owner.get("controller"):
            version, name = owner["apiVersion"], owner["name"]
            if not A_VERSION.fullmatch(version) or not can_be_called(name):
                return None  # there is no such object: a stranger's
            return Controller(sys.intern(version), sys.intern(owner["kind"]), name, owner["uid"])
    return None


def _attempt(env: list[Object]) -> int:
    """From the pod's spec, which nobody can change, as its labels can be."""
    written = next((one.get("value", "") for one in env if one["name"] == ATTEMPT), "")
    return int(written) if NUMBER.fullmatch(written) else 1


def _container(container: Object) -> Container:
    return Container(sys.intern(container["name"]), sys.intern(container.get("image", "")))
