"""Keeps pods from being evicted because resourced was away.

The API server gives each pod 300 s of tolerating a node whose Lease has lapsed. On a virtual node that would
end all its jobs when resourced has been away for five minutes, while they run on in Slurm. So the seconds are
taken off the tolerations `not-ready` and `unreachable`; that also stops an eviction that is already due. The
chart's policy redbox-pods allows nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus

from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiError, ApiRefused, Object, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.pods.pod_view import BoundPod, BoundPodKind

PERIOD_S = 5.0
"""Far shorter than any toleration in use; a pass without work looks at one field of each pod."""
AT_ONCE = 8
CHANGED_MEANWHILE = frozenset({HTTPStatus.UNPROCESSABLE_ENTITY})
POLICY = "ValidatingAdmissionPolicy"


class TolerationLifter:
    """Lifts the tolerations of all pods of `pods` that run as jobs."""

    def __init__(
        self, objects: ObjectClient, pods: Callable[[], Iterable[BoundPod]], runs_pods: Callable[[str], bool]
    ) -> None:
        """`runs_pods`: whether pods on this node run as jobs."""
        self.warnings = GroupedWarnings("tolerations of pods not lifted")
        self._objects = objects
        self._pods = pods
        self._runs_pods = runs_pods

    async def run(self) -> None:
        while True:
            await self.lift_all()
            await asyncio.sleep(PERIOD_S)

    async def lift_all(self) -> None:
        """One pass; failures are retried in the next one."""
        timed = {_name(pod): pod for pod in self._pods() if self._is_timed(pod)}
        for name in self.warnings.failing.keys() - timed.keys():
            self.warnings.recovered(name)
        at_once = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for pod in timed.values():
                group.create_task(self._try_lift(pod, at_once))

    def _is_timed(self, pod: BoundPod) -> bool:
        return (
            bool(pod.timed_tolerations)
            and pod.role is BoundPodKind.POD
            and not (pod.has_ended or pod.is_being_deleted)
            and self._runs_pods(pod.node)
        )

    async def _try_lift(self, pod: BoundPod, at_once: asyncio.Semaphore) -> None:
        async with at_once:
            try:
                await self._objects.json_patch(
                    ResourcePath(kinds.POD, pod.name, pod.namespace), lifting_patch(pod)
                )
            except ApiRefused as refusal:
                if refusal.status not in CHANGED_MEANWHILE or POLICY in str(refusal):
                    self.warnings.failed(_name(pod), refusal)
            except ApiError as error:
                self.warnings.failed(_name(pod), error)
            else:
                self.warnings.recovered(_name(pod))


def lifting_patch(pod: BoundPod) -> list[Object]:
    """Removes the seconds; applies only to this very pod with these very tolerations."""
    operations: list[Object] = [{"op": "test", "path": "/metadata/uid", "value": pod.uid}]
    for toleration in pod.timed_tolerations:
        path = f"/spec/tolerations/{toleration.position}"
        operations += [
            {"op": "test", "path": f"{path}/key", "value": toleration.key},
            {"op": "test", "path": f"{path}/tolerationSeconds", "value": toleration.seconds},
            {"op": "remove", "path": f"{path}/tolerationSeconds"},
        ]
    return operations


def _name(pod: BoundPod) -> str:
    return "/".join(pod.place)
