"""Keeps the EndpointSlices of pods with dynamic ports in step with the pods and their Services.

A slice belongs to its pod: Kubernetes removes it with the pod. Changes of a Service, of a slice, and what
pods' reconciliations have shown, each enqueue the pod, and the full state decides.
"""

from __future__ import annotations

import asyncio

import structlog

from redbox_api.models import Job
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_kube.api.informer import Informer, Place
from redbox_kube.api.kinds import ENDPOINT_SLICE, POD, SERVICE
from redbox_kube.api.objects import ApiError, Object, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_kube.runtime.paces import Pace
from redbox_kube.runtime.work_queue import WorkQueue
from redbox_resourced.pods.pod_view import ENDED, BoundPod
from redbox_resourced.pods.reported.run_status import usable_address
from redbox_resourced.service_endpoints.slices import (
    MANAGED_BY,
    MANAGER,
    PodAddress,
    ServiceView,
    endpoint_slice,
    path_of_slice,
    read_service,
)

log = structlog.get_logger(__name__)
WORKERS = 8
RETRY_S = 10.0
BURST, REFILL_S = 10, 2.0


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
        self._pods: dict[Place, PodAddress] = {}
        self._applied: dict[Place, Object] = {}
        """By the slice: what was written last."""
        self._owners: dict[Place, Place] = {}
        """Pods, by their slices."""
        self._queue: WorkQueue[Place] = WorkQueue()
        self._pace = Pace(BURST, REFILL_S)
        """A pod's ports are what its user reports, and each change is a write for each of its Services."""
        self._warnings = GroupedWarnings("endpoints not written")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._services.run())
            group.create_task(self._slices.run())
            await self._services.listed.wait()
            await self._slices.listed.wait()
            group.create_task(self._queue.run(self._reconcile, workers=WORKERS))

    # -- changes

    def pod_shown(self, pod: BoundPod, job: Job, cluster: SlurmCluster) -> None:
        """After each reconciliation of a pod with a job; a missing report changes nothing."""
        if job.pod is None or not (job.pod.ports or pod.place in self._pods):
            return
        address = usable_address(job.pod.host_ip) if cluster.spec.pods.routed else ""
        self._pods[pod.place] = PodAddress(pod.uid, address, job.pod.chosen_ports)
        self._queue.add(pod.place)

    def pod_deleted(self, pod: BoundPod) -> None:
        if self._pods.pop(pod.place, None):
            self._queue.add(pod.place)

    def _services_changed(self, places: set[Place]) -> None:
        namespaces = {namespace for namespace, _ in places}
        for pod in self._pods:
            if pod[0] in namespaces:
                self._queue.add(pod)

    def _slices_changed(self, places: set[Place]) -> None:
        for place in places:
            owner = self._slices.items.get(place) or self._owners.get(place)
            if owner is not None:
                self._owners[place] = owner
                self._queue.add(owner)

    # -- one pod

    async def _reconcile(self, place: Place) -> None:
        name = "/".join(place)
        try:
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

    async def _reconcile_pod(self, place: Place) -> None:
        namespace, name = place
        at = self._pods.get(place)
        pod = await self._objects.get(ResourcePath(POD, name, namespace))
        wanted: dict[Place, Object] = {}
        if pod is not None and pod["status"].get("phase") not in ENDED:
            if at is None:
                return  # after a restart its job is read later
            wanted = self._wanted(pod, at)
        changed = {each: body for each, body in wanted.items() if not self._is_written(each, body)}
        gone = [each for each, owner in self._owners.items() if owner == place and each not in wanted]
        if (changed or gone) and (pause_s := self._pace.take("/".join(place))):
            self._queue.add_later(place, pause_s)
            return
        for slice_place, body in changed.items():
            self._owners[slice_place] = place
            await self._objects.apply(ResourcePath(ENDPOINT_SLICE, slice_place[1], namespace), body)
            self._applied[slice_place] = body
        for slice_place in gone:
            await self._objects.delete(ResourcePath(ENDPOINT_SLICE, slice_place[1], namespace))
            self._applied.pop(slice_place, None)
            del self._owners[slice_place]

    def _is_written(self, slice_place: Place, body: Object) -> bool:
        return slice_place in self._slices.items and self._applied.get(slice_place) == body

    def _wanted(self, pod: Object, at: PodAddress) -> dict[Place, Object]:
        namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
        found: dict[Place, Object] = {}
        if not (at.ports and at.address) or at.uid != pod["metadata"]["uid"]:
            return found
        services: list[tuple[Place, ServiceView]] = list(self._services.items.items())
        for (where, name), service in services:
            if where != namespace or not service.selects(labels):
                continue
            if body := endpoint_slice(name, service, pod, at):
                found[namespace, path_of_slice(name, pod).name] = body
        return found


def _pod_of(body: Object) -> Place | None:
    """The pod that owns a slice."""
    metadata = body["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner["kind"] == "Pod":
            return metadata["namespace"], owner["name"]
    return None
