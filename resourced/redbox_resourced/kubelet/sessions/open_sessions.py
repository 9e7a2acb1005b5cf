"""Which sessions are open now: so many of all, of a namespace and of a pod."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from redbox_resourced.kubelet.sessions.ending import SessionInterrupt
from redbox_resourced.kubelet.shares import NamespaceShares, TooManyOpen
from redbox_resourced.pods.pod_view import BoundPod

MOST_SESSIONS, MOST_CONNECTIONS = 500, 2000
NAMESPACES = 4
"""So many can use up all: of each, a quarter may be open."""
MOST_OF_POD = 64


class OpenSessions:
    """Those of all pods, each of which ends with its pod."""

    def __init__(self) -> None:
        self.sessions = NamespaceShares("sessions", MOST_SESSIONS, MOST_SESSIONS // NAMESPACES)
        connections = MOST_CONNECTIONS, MOST_CONNECTIONS // NAMESPACES
        self.connections = NamespaceShares("forwarded connections", *connections)
        self._of_pods: defaultdict[str, list[SessionInterrupt]] = defaultdict(list)

    @contextmanager
    def opened(self, pod: BoundPod) -> Iterator[SessionInterrupt]:
        """Raises TooManyOpen where no more may be."""
        if len(self._of_pods.get(pod.uid, ())) >= MOST_OF_POD:
            raise TooManyOpen(f"{MOST_OF_POD} sessions of this pod")
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
