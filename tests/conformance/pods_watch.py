"""Where the pods of each case ran, and which were refused: watched, because the suite deletes its pods.

A case that passes while its pods ran on an ordinary node, or were refused, shows nothing of virtual nodes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import urllib3
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

REFUSED = "Unsupported"
"""The reason of a pod with a field that no Slurm job can keep."""
VIRTUAL = "hpc1."
NOT_THE_SUITES = {"kube-system", "redbox-system", "alice", "bob"}
WATCH_S = 60


@dataclass
class PodsOfNamespace:
    """Nodes of the pods, and the messages of those that were refused."""

    nodes: set[str] = field(default_factory=set)
    refusals: set[str] = field(default_factory=set)

    def add(self, pod: Mapping[str, Any]) -> None:
        status = pod.get("status") or {}
        if node := pod["spec"].get("nodeName"):
            self.nodes.add(node)
        if status.get("phase") == "Failed" and status.get("reason") == REFUSED:
            self.refusals.add(str(status.get("message", "")))

    @property
    def ran_on_slurm(self) -> bool:
        return any(node.startswith(VIRTUAL) for node in self.nodes)

    @property
    def elsewhere(self) -> list[str]:
        return sorted(node for node in self.nodes if not node.startswith(VIRTUAL))


def together(namespaces: Iterable[PodsOfNamespace]) -> PodsOfNamespace:
    """Those of all namespaces of one case."""
    result = PodsOfNamespace()
    for each in namespaces:
        result.nodes |= each.nodes
        result.refusals |= each.refusals
    return result


class PodsWatch:
    """Follows all pods. Each change of a status is a line of a file, in which causes are found."""

    def __init__(self, kubeconfig: Path, lines: Path) -> None:
        loaded = config.new_client_from_config(config_file=str(kubeconfig))  # type: ignore[no-untyped-call]
        self.namespaces: dict[str, PodsOfNamespace] = {}
        self._api = client.CoreV1Api(loaded)
        self._lines = lines
        self._latest: dict[str, str] = {}
        self._stopped = threading.Event()

    @contextmanager
    def running(self) -> Iterator[PodsWatch]:
        """As long as the block lasts."""
        threading.Thread(target=self._follow, daemon=True).start()
        try:
            yield self
        finally:
            self._stopped.set()  # its connection may wait for events for a while: nobody waits for it

    def of(self, namespaces: Iterable[str]) -> PodsOfNamespace:
        return together(self.namespaces[name] for name in namespaces if name in self.namespaces)

    def _follow(self) -> None:
        """Until it is stopped. A watch that ends is begun again, with a list of what was missed."""
        with self._lines.open("w", buffering=1) as lines:
            while not self._stopped.is_set():
                try:
                    for event in self._events():
                        self._look_at(event["raw_object"], lines)
                        if self._stopped.is_set():
                            return
                except (ApiException, urllib3.exceptions.HTTPError, OSError):
                    self._stopped.wait(1)

    def _events(self) -> Iterator[Mapping[str, Any]]:
        limits = {"timeout_seconds": WATCH_S, "_request_timeout": 2 * WATCH_S}
        pods = watch.Watch()  # type: ignore[no-untyped-call]
        return iter(pods.stream(self._api.list_pod_for_all_namespaces, **limits))  # type: ignore[no-untyped-call]

    def _look_at(self, pod: Mapping[str, Any], lines: TextIO) -> None:
        metadata = pod["metadata"]
        namespace = metadata["namespace"]
        if namespace in NOT_THE_SUITES:
            return
        self.namespaces.setdefault(namespace, PodsOfNamespace()).add(pod)
        shown = json.dumps(pod.get("status"))
        if self._latest.get(metadata["uid"]) != shown:
            self._latest[metadata["uid"]] = shown
            row = {"namespace": namespace, "name": metadata["name"], "node": pod["spec"].get("nodeName")}
            lines.write(
                json.dumps({**row, "deleted": metadata.get("deletionTimestamp"), "status": pod.get("status")})
            )
            lines.write("\n")
