"""Which sessions are open now: so many of all, of a namespace and of a pod."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

from redbox_resourced.kubelet.sessions.ending import SessionInterrupt
from redbox_resourced.kubelet.sessions.statuses import SessionRejected
from redbox_resourced.pods.pod_view import BoundPod

MOST_SESSIONS, MOST_CONNECTIONS = 500, 2000
NAMESPACES = 4
"""So many can use up all: of each, a quarter may be open."""
MOST_OF_POD = 64


@dataclass(frozen=True)
class Share:
    """How many of one kind are open, and in which namespaces."""

    most: int
    kind: str
    now: Counter[str]

    @contextmanager
    def taken(self, namespace: str) -> Iterator[None]:
        """Raises SessionRejected where no more may be open."""
        if self.now.total() >= self.most:
            raise _too_many(f"{self.most} {self.kind} are open now")
        if self.now[namespace] >= self.most // NAMESPACES:
            raise _too_many(f"{self.now[namespace]} {self.kind} of namespace {namespace} are open now")
        self.now[namespace] += 1
        try:
            yield
        finally:
            self.now[namespace] -= 1
            if not self.now[namespace]:
                del self.now[namespace]


class OpenSessions:
    """Those of all pods, each of which ends with its pod."""

    def __init__(self) -> None:
        self.sessions = Share(MOST_SESSIONS, "sessions", Counter())
        self.connections = Share(MOST_CONNECTIONS, "forwarded connections", Counter())
        self._of_pods: defaultdict[str, list[SessionInterrupt]] = defaultdict(list)

    @contextmanager
    def opened(self, pod: BoundPod) -> Iterator[SessionInterrupt]:
        """Raises SessionRejected where no more may be open."""
        if len(self._of_pods.get(pod.uid, ())) >= MOST_OF_POD:
            raise _too_many(f"{MOST_OF_POD} sessions of this pod are open now")
        with self.sessions.taken(pod.namespace):
            interrupt = SessionInterrupt()
            self._of_pods[pod.uid].append(interrupt)
            try:
                yield interrupt
            finally:
                self._of_pods[pod.uid].remove(interrupt)
                if not self._of_pods[pod.uid]:
                    del self._of_pods[pod.uid]

    def end(self, pod: BoundPod, reason: str) -> None:
        for interrupt in self._of_pods.get(pod.uid, ()):
            interrupt.interrupt(reason)

    def end_all(self, reason: str) -> None:
        for interrupts in self._of_pods.values():
            for interrupt in interrupts:
                interrupt.interrupt(reason)


def _too_many(what: str) -> SessionRejected:
    return SessionRejected(f"{what}: end one of them, or retry later", HTTPStatus.SERVICE_UNAVAILABLE)
