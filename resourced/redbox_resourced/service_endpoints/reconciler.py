"""Keeps the EndpointSlices of pods with dynamic ports in step with the pods and their Services.

A slice belongs to its pod: Kubernetes removes it with the pod. Changes of a Service, of a slice, and what
pods' reconciliations have shown, each enqueue the pod, and the full state decides. Users create as many pods
and Services as they like: slots and pace are a namespace's own, and a pod has a limited number of slices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TypeVar

import structlog

from redbox_api.models import Job
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_kube.api.events import WARNING, Event
from redbox_kube.api.informer import Informer, Place
from redbox_kube.api.kinds import ENDPOINT_SLICE, POD, SERVICE
from redbox_kube.api.objects import ApiError, Object, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_kube.runtime.paces import Pace
from redbox_kube.runtime.work_queue import WorkQueue
from redbox_resourced.nodes.node_view import MANAGER as REPORTER
from redbox_resourced.pods.pod_view import ENDED, BoundPod
from redbox_resourced.pods.reported.run_status import usable_address
from redbox_resourced.service_endpoints.slice_index import SliceIndex
from redbox_resourced.service_endpoints.slices import (
    MANAGED_BY,
    MANAGER,
    PodAddress,
    ServiceView,
    endpoint_slice,
    path_of_slice,
    read_service,
)
from redbox_resourced.service_endpoints.write_turns import WriteTurns
from redbox_shared.keyed_semaphores import FairSlots

log = structlog.get_logger(__name__)
ValueT = TypeVar("ValueT")
WRITES_AT_ONCE, OF_A_NAMESPACE = 8, 2
RETRY_S = 10.0
BURST, REFILL_S = 100, 0.05
"""Reconciliations and writes of a namespace: 100 in a row, then 20 a second."""
MOST_SLICES = 16
"""Of a pod: each Service that selects it is one more, and its namespace may have thousands."""
TOO_MANY = "TooManyServices"


class ServiceEndpoints:
    """Of all pods with dynamic ports on clusters whose nodes Kubernetes reaches."""

    def __init__(self, objects: ObjectClient) -> None:
        self._objects = objects
        self._services = Informer(
            objects, ResourcePath(SERVICE), reduced=read_service, on_change=self._services_changed
        )
        self._slices = Informer(
            objects,
            ResourcePath(ENDPOINT_SLICE),
            selection={"labelSelector": f"{MANAGED_BY}={MANAGER}"},
            reduced=_pod_of,
            on_change=self._slices_changed,
        )
        self._pods: dict[str, dict[str, PodAddress]] = {}
        """By namespace and name, as the Services."""
        self._services_of: dict[str, dict[str, ServiceView]] = {}
        self._index = SliceIndex()
        self._warned: dict[Place, str] = {}
        """The uids of pods with too many Services."""
        self._queue: WorkQueue[Place] = WorkQueue()
        self._slots = FairSlots(WRITES_AT_ONCE, OF_A_NAMESPACE)
        self._turns = WriteTurns(Pace(BURST, REFILL_S), self._queue.add)
        self._warnings = GroupedWarnings("endpoints not written")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._services.run())
            group.create_task(self._slices.run())
            await self._services.listed.wait()
            await self._slices.listed.wait()
            group.create_task(self._queue.run(self._reconcile, workers=None))

    # -- changes

    def pod_shown(self, pod: BoundPod, job: Job, cluster: SlurmCluster) -> None:
        """After each reconciliation of a pod with a job; a missing report changes nothing."""
        if job.pod is None or not (job.pod.ports or pod.name in self._pods.get(pod.namespace, {})):
            return
        address = usable_address(job.pod.host_ip) if cluster.spec.pods.routed else ""
        shown = PodAddress(pod.uid, address, job.pod.chosen_ports)
        self._pods.setdefault(pod.namespace, {})[pod.name] = shown
        self._queue.add(pod.place)

    def pod_deleted(self, pod: BoundPod) -> None:
        self._warned.pop(pod.place, None)
        if _remove(self._pods, pod.place):
            self._queue.add(pod.place)

    def _services_changed(self, places: set[Place]) -> None:
        """Most updates of a Service change nothing that its slices depend on."""
        changed: set[str] = set()
        for place in places:
            namespace, name = place
            view: ServiceView | None = self._services.items.get(place)
            if view == self._services_of.get(namespace, {}).get(name):
                continue
            changed.add(namespace)
            if view is None:
                _remove(self._services_of, place)
            else:
                self._services_of.setdefault(namespace, {})[name] = view
        for namespace in changed:
            for name in self._pods.get(namespace, ()):
                self._queue.add((namespace, name))

    def _slices_changed(self, places: set[Place]) -> None:
        """Our own writes come back as events: only a slice that is new or gone is a change."""
        for place in places:
            shown, before = self._slices.items.get(place), self._index.pod_of(place)
            if shown is not None and shown != before:
                self._index.add(place, shown)
                self._queue.add(shown)
            if before is not None and shown != before:
                self._queue.add(before)

    # -- one pod

    async def _reconcile(self, place: Place) -> None:
        if not self._turns.begin(place):
            return
        name = "/".join(place)
        try:
            async with self._slots.of(place[0]):
                await self._reconcile_pod(place)
        except ApiError as error:
            self._warnings.failed(name, error)
            self._queue.add_later(place, RETRY_S)
        except Exception:
            # An object that one tenant wrote must not stop the service for all.
            log.exception("endpoints", pod=name)
            self._queue.add_later(place, RETRY_S)
        else:
            self._warnings.recovered(name)
        finally:
            self._turns.end(place)

    async def _reconcile_pod(self, place: Place) -> None:
        namespace, name = place
        at = self._pods.get(namespace, {}).get(name)
        pod = await self._objects.get(ResourcePath(POD, name, namespace))
        wanted: dict[Place, Object] = {}
        if pod is not None and pod["status"].get("phase") not in ENDED:
            if at is None:
                return  # after a restart its job is read later
            found = list(islice(self._wanted(pod, at), MOST_SLICES + 1))
            wanted = dict(found[:MOST_SLICES])
            if len(found) > MOST_SLICES:
                await self._warn_of_services(place, pod)
        for slice_place in [each for each in self._index.of(place) if each not in wanted]:
            if not self._turns.take(place):
                return
            await self._objects.delete(ResourcePath(ENDPOINT_SLICE, slice_place[1], namespace))
            self._index.remove(slice_place)
        for slice_place, body in wanted.items():
            if slice_place in self._slices.items and self._index.is_written(slice_place, body):
                continue
            if not self._turns.take(place):
                return
            self._index.add(slice_place, place)
            await self._objects.apply(ResourcePath(ENDPOINT_SLICE, slice_place[1], namespace), body)
            self._index.written(slice_place, body)

    def _wanted(self, pod: Object, at: PodAddress) -> Iterator[tuple[Place, Object]]:
        """Those that the pod already has come first: a new Service displaces none."""
        namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
        if not (at.ports and at.address) or at.uid != pod["metadata"]["uid"]:
            return
        services = self._services_of.get(namespace, {})
        places = {
            name: (namespace, path_of_slice(name, pod).name)
            for name, service in services.items()
            if service.selects(labels)
        }
        for name in sorted(places, key=lambda name: (self._index.pod_of(places[name]) is None, name)):
            if body := endpoint_slice(name, services[name], pod, at):
                yield places[name], body

    async def _warn_of_services(self, place: Place, pod: Object) -> None:
        """Once for each pod."""
        uid = pod["metadata"]["uid"]
        if self._warned.get(place) == uid:
            return
        self._warned[place] = uid
        message = f"Only {MOST_SLICES} Services lead to a pod with dynamic ports, and more select it"
        where = ResourcePath(POD, place[1], place[0])
        event = Event(where, uid, TOO_MANY, WARNING, TOO_MANY, message, TOO_MANY, REPORTER)
        try:
            await self._objects.create(event.where, event.body(datetime.now(UTC)))
        except ApiError as error:
            log.warning("event not written", pod="/".join(place), reason=TOO_MANY, error=str(error))


def _remove(by_namespace: dict[str, dict[str, ValueT]], place: Place) -> ValueT | None:
    """Returns what was there; a namespace goes with its last one."""
    namespace, name = place
    removed = by_namespace.get(namespace, {}).pop(name, None)
    if not by_namespace.get(namespace, True):
        del by_namespace[namespace]
    return removed


def _pod_of(body: Object) -> Place | None:
    """The pod that owns a slice."""
    metadata = body["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner["kind"] == "Pod":
            return metadata["namespace"], owner["name"]
    return None
