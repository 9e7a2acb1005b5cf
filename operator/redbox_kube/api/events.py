"""Kubernetes events, as `kubectl describe` shows them: one for each change."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from redbox_shared.printable import printable

NORMAL, WARNING = "Normal", "Warning"
LONGEST_NOTE = 1024
NAMESPACE = "default"
"""The namespace for events of cluster-scoped objects."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event about an object. Its name is derived from `change`, so that a change has one event."""

    about: ResourcePath
    uid: str
    change: str
    severity: str
    reason: str
    message: str
    action: str
    component: str
    field_path: str = ""
    """The part of the object: `spec.containers{name}`."""
    repeats: bool = False
    """Whether the same change may happen again: the event then counts, as kubelets' do."""
    is_answer: bool = False
    """Whether it answers a request of a user, who waits for it."""
    host: str = ""
    """The Node whose kubelet reports it."""

    @property
    def where(self) -> ResourcePath:
        """The collection to create it in."""
        return ResourcePath(kinds.EVENT, namespace=self.about.namespace or NAMESPACE)

    @property
    def name(self) -> str:
        digest = hashlib.sha256(f"{self.uid}|{self.change}".encode()).hexdigest()[:16]
        return f"{self.about.name[:200].rstrip('-.')}.{digest}"  # each part ends as a name does

    def body(self, now: datetime) -> Object:
        time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {
            "apiVersion": self.about.kind.api_version,
            "kind": self.about.kind.name,
            "name": self.about.name,
            "namespace": self.about.namespace,
            "uid": self.uid,
            "fieldPath": self.field_path,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": self.where.namespace},
            "involvedObject": {key: value for key, value in about.items() if value},
            "type": self.severity,
            "reason": printable(self.reason),
            "message": printable(self.message[:LONGEST_NOTE], lines=True),
            "action": self.action,
            "count": 1,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "source": {"component": self.component, **({"host": self.host} if self.host else {})},
            "reportingComponent": self.component,
            "reportingInstance": self.host or self.component,
        }
