"""Events of pods that run: each of the runner's once, also across a restart of resourced.

The name of an event comes from the pod's uid and the event's number, so that a second one is refused as
already existing. The runner is the user's: of each pod so many events are published at once, and then one in
some minutes, as kubelets limit theirs, and a namespace never takes all slots. Events are hints: one that
cannot be written is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from redbox_api.models import Job
from redbox_api.pod_report import PodEvent
from redbox_kube.api import kinds
from redbox_kube.api.events import LONGEST_NOTE, WARNING, Event
from redbox_kube.api.objects import ApiError, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_kube.runtime.paces import Pace
from redbox_resourced.pods.pod_view import BoundPod
from redbox_shared.keyed_semaphores import FairSlots

AT_ONCE, OF_A_NAMESPACE = 16, 4
BURST = 25
REFILL_S = 300.0
"""As kubelets limit the events of one object."""
KUBELET = "kubelet"
"""The component, as clients look for it: to a pod its node's kubelet is who reports."""
KEPT = timedelta(hours=1)
"""The API server keeps events for so long: older ones would be created a second time."""


@dataclass
class PodEvents:
    """Publishes them."""

    objects: ObjectClient
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _published: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By the pod's uid: the job's run, and the highest number in it."""
    _warned: dict[str, str] = field(default_factory=dict)
    _pace: Pace = field(init=False)
    _slots: FairSlots = field(default_factory=lambda: FairSlots(AT_ONCE, OF_A_NAMESPACE))
    _warnings: GroupedWarnings = field(default_factory=lambda: GroupedWarnings("events not written"))

    def __post_init__(self) -> None:
        self._pace = Pace(BURST, REFILL_S, lambda: self.now().timestamp())

    async def publish(self, pod: BoundPod, job: Job) -> None:
        """Those of the runner's report that are new."""
        for event in sorted(job.pod.events if job.pod else (), key=lambda event: event.number):
            position = (job.run, event.number)
            if position <= self._published.get(pod.uid, (0, 0)):
                continue
            self._published[pod.uid] = position
            if self.now() - event.at < KEPT:
                await self._create(pod, _of_runner(pod, job.run, event), event.at)

    async def warn(self, pod: BoundPod, reason: str, message: str) -> None:
        """Why the pod waits; once for each message in a row. It may quote all that the pod's author wrote."""
        message = message[:LONGEST_NOTE]
        if self._warned.get(pod.uid) == message:
            return
        self._warned[pod.uid] = message
        change = f"{reason}|{message}"
        event = Event(_path(pod), pod.uid, change, WARNING, reason, message, reason, KUBELET, host=pod.node)
        await self._create(pod, event, self.now())

    def forget(self, pod: BoundPod) -> None:
        self._published.pop(pod.uid, None)
        self._warned.pop(pod.uid, None)
        self._pace.forget(pod.uid)

    async def _create(self, pod: BoundPod, event: Event, at: datetime) -> None:
        if self._pace.take(pod.uid):
            return
        name = f"{pod.namespace}/{pod.name}"
        try:
            async with self._slots.of(pod.namespace):
                await self.objects.create(event.where, event.body(at))
        except (ApiError, TimeoutError) as error:
            self._warnings.failed(name, error)
        else:
            self._warnings.recovered(name)


def _of_runner(pod: BoundPod, run: int, event: PodEvent) -> Event:
    return Event(
        _path(pod),
        pod.uid,
        f"run {run}, event {event.number}",
        event.type,
        event.reason,
        event.message,
        event.reason,
        KUBELET,
        _field_path(pod, event.container),
        host=pod.node,
    )


def _field_path(pod: BoundPod, container: str) -> str:
    """As in the events of kubelets."""
    if not container:
        return ""
    init = pod.details.init_containers if pod.details else ()
    added = pod.details.ephemeral_containers if pod.details else ()
    part = "initContainers" if container in {item.name for item in init} else "containers"
    part = "ephemeralContainers" if container in {item.name for item in added} else part
    return f"spec.{part}{{{container}}}"


def _path(pod: BoundPod) -> ResourcePath:
    return ResourcePath(kinds.POD, pod.name, pod.namespace)
