"""Things of one kind in Kubernetes, made at once: when a watch first shows each as accepted, begun and ended.

All clocks here are one, also that of what runs: each script says when it begins and when it ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn
from uuid import uuid4

from redbox_clusters.names import SLURM_JOBS
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from tests.bench.kubectl import pod
from tests.bench.virtual_jobs import API
from tests.e2e.harness.slurm_pods import condition, container, on_slurm

ALICE, NATIVE_NAMESPACE = "alice", "bench-slurmjobs"
GIVES_UP_S = 600.0
ENDED = frozenset({"Succeeded", "Failed"})
MICROSECONDS = 10**6
STAMP = '/bin/busybox adjtimex | /bin/busybox awk \'/time.tv_/ {printf "%s ", $2} END {print ""}\''
"""Seconds and microseconds: the `date` of busybox has seconds alone."""


@dataclass(frozen=True)
class Life:
    """Seconds since 1970; `accepted`: it is in Slurm, or a kubelet has begun with it."""

    asked: float
    accepted: float = 0.0
    begun: float = 0.0
    ended: float = 0.0


@dataclass(frozen=True)
class Kind:
    """How one of them is made, and how its status says that it was accepted."""

    where: ResourcePath
    make: Callable[[str, str], Object]
    is_accepted: Callable[[Object], bool]
    pod_suffix: str = ""
    """What its pod has behind its name."""


def _slurm_pod(name: str, script: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": on_slurm(container(script)),
    }


def _slurm_job(name: str, script: str) -> Object:
    spec = {"cluster": "hpc1", "batch": f"#!/bin/sh\n{script}\n"}
    metadata = {"name": name, "labels": {"app": "bench"}}
    return {"apiVersion": API, "kind": "SlurmJob", "metadata": metadata, "spec": spec}


ON_SLURM = Kind(
    ResourcePath(kinds.POD, namespace=ALICE),
    _slurm_pod,
    lambda status: condition(status, "redbox.dev/Submitted").get("status") == "True",
)
SLURM_JOB = Kind(
    ResourcePath(SLURM_JOBS, namespace=ALICE),
    _slurm_job,
    lambda status: bool(status.get("jobID")),
    "-job",
)
NATIVE = Kind(ResourcePath(kinds.POD, namespace=NATIVE_NAMESPACE), pod, lambda status: "startTime" in status)


@dataclass
class Lives:
    """Makes them, and watches them."""

    objects: ObjectClient
    kind: Kind
    times: dict[str, dict[str, float]] = field(default_factory=dict)
    _seen: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, script: str, count: int, *, until: str) -> dict[str, Life]:
        """Create so many at once; return when the watch has shown each of them as `until` says."""
        version = [version async for _, version in self.objects.pages(self.kind.where)][-1]
        watching = asyncio.create_task(self._watch(version))
        names = [f"b-{uuid4().hex[:10]}" for _ in range(count)]
        try:
            await asyncio.gather(*(self._make(name, script) for name in names))
            await self._wait(watching, names, until)
        finally:
            watching.cancel()
            await asyncio.wait({watching})
        return {name: Life(**self.times[name]) for name in names}

    async def _wait(self, watching: asyncio.Task[NoReturn], names: Sequence[str], until: str) -> None:
        """Until all are as far as that; raises TimeoutError, or what broke the watch."""
        loop = asyncio.get_running_loop()
        gives_up_at = loop.time() + GIVES_UP_S
        while missing := [name for name in names if until not in self.times[name]]:
            self._seen.clear()
            seen = asyncio.create_task(self._seen.wait())
            done, _ = await asyncio.wait(
                {watching, seen}, timeout=gives_up_at - loop.time(), return_when=asyncio.FIRST_COMPLETED
            )
            seen.cancel()
            if watching in done:
                watching.result()
            if not done:
                raise TimeoutError(
                    f"after {GIVES_UP_S:.0f} s {len(missing)} of {len(names)} {self.kind.where.kind}s "
                    f"in {self.kind.where.namespace} are not {until}: {', '.join(missing[:5])}"
                )

    async def _make(self, name: str, script: str) -> None:
        self.times[name] = {"asked": time.time()}
        made = await self.objects.create(self.kind.where, self.kind.make(name, script))
        assert made is not None

    async def _watch(self, version: str) -> NoReturn:
        while True:  # a watch ends after some minutes
            async for event in self.objects.watch(self.kind.where, version):
                metadata = event["object"]["metadata"]
                version = metadata["resourceVersion"]
                if (name := metadata.get("name", "")) in self.times:
                    for what in _shown(self.kind, event["object"].get("status", {})):
                        self.times[name].setdefault(what, time.time())
                    self._seen.set()


def _shown(kind: Kind, status: Object) -> Iterator[str]:
    """A state that no watch has shown was over before the next one was."""
    has_ended = status.get("phase") in ENDED
    has_begun = has_ended or status.get("phase") == "Running"
    if has_begun or kind.is_accepted(status):
        yield "accepted"
    if has_begun:
        yield "begun"
    if has_ended:
        yield "ended"


def stamps(log: str) -> list[float]:
    """What a script wrote by STAMP: seconds since 1970."""
    found: list[float] = []
    for line in log.splitlines():
        words: list[Any] = line.split()
        if [word.isdigit() for word in words] == [True, True]:
            found.append(int(words[0]) + int(words[1]) / MICROSECONDS)
    return found
