"""Removes Red Box from a cluster, so that no object waits for a controller that is gone.

It runs before the controllers' objects are deleted (the chart's hook), while both controllers still work and
can cancel jobs. Then they are stopped, because a running controller would create removed objects again. A
failure before the first removal starts them again. A failure after it does not keep other objects from being
removed: it is reported at the end, and another run continues from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from http import HTTPStatus

from redbox_clusters.names import FINALIZER_VOLUME, LABEL_JOB_UID, LABEL_VIRTUAL
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS
from redbox_clusters.virtual_pods import SubmittedPod, submitted_pods
from redbox_kube.api import kinds
from redbox_kube.api.lease import LeaseObservation
from redbox_kube.api.objects import ApiError, ApiRefused, Object, ObjectClient, PodRef, ResourcePath
from redbox_kube.install.parallel import failures_of
from redbox_kube.runtime.clock import becomes_true
from redbox_operator.api.constants import CLUSTER_FINALIZER, FINALIZER, cluster_finalizer
from redbox_operator.api.decode import RESOURCES
from redbox_operator.api.optional_kinds import if_served
from redbox_operator.install.published_nodes import is_virtual, reduced, withdrawn

CLUSTERS = ResourcePath(SLURM_CLUSTERS)
CONTROLLERS = ("redbox-operator", "redbox-resourced")
HEARTBEATS = "kube-node-lease"
FINISHED_PHASES = frozenset({"Succeeded", "Failed", "Cancelled"})
CANCEL_WITHIN_S = 270.0  # Helm waits for a hook for 300 s
STOP_WITHIN_S = 60.0
NEEDED = ("name", "namespace", "uid", "resourceVersion", "finalizers")
TRIES = 5
NAMED_AT_MOST = 20

Report = Callable[[str], None]


class JobsPolicy(StrEnum):
    """What happens to jobs in Slurm."""

    KEEP = "Keep"
    CANCEL = "Cancel"


class NotUninstalled(Exception):
    """Objects are left; the message says which, and why."""


Companions = dict[tuple[str, str], list[PodRef]]
"""By namespace and uid of their SlurmJob."""


@dataclass(frozen=True)
class InstalledObjects:
    """The objects to release or remove, listed after the controllers have stopped."""

    jobs: Sequence[Object]
    companions: Companions
    clusters: Sequence[Object]
    nodes: Sequence[Object]
    volumes: Sequence[Object]
    pods: Sequence[SubmittedPod]
    """Those that run as jobs: nothing follows them any more."""


@dataclass(frozen=True)
class Uninstall:
    """One uninstall: where Red Box runs, what happens to jobs, and where progress is reported."""

    objects: ObjectClient
    namespace: str
    watched: Sequence[str]
    """Namespaces that the operator was limited to; empty: all."""
    jobs: JobsPolicy
    cancel_within_s: float
    report: Report

    async def run(self) -> None:
        """All steps. It can be repeated after a failure, and continues there."""
        if self.jobs is JobsPolicy.CANCEL:
            await self._cancel()
        async with self._controllers_stopped():
            inventory = await self._inventory()
        for pod in inventory.pods:
            self.report(f"left in Slurm: {pod}")
        left = [
            *await failures_of(
                inventory.jobs,
                partial(self._release_job, inventory.companions),
                lambda job: f"the finalizer of {described(job)}",
            ),
            *await failures_of(
                inventory.clusters,
                self._release_cluster,
                lambda cluster: f"the finalizer of SlurmCluster {cluster['metadata']['name']}",
            ),
            *await failures_of(
                inventory.nodes, self._clean_node, lambda node: f"node {node['metadata']['name']}"
            ),
            *await failures_of(
                inventory.volumes,
                self._release_volume,
                lambda volume: f"the finalizer of PersistentVolume {volume['metadata']['name']}",
            ),
            *await failures_of(CONTROLLERS, self._free, "Lease {}".format),
        ]
        if left:
            for failure in left:
                self.report(f"not removed: {failure}")
            raise NotUninstalled(
                f"{len(left)} objects are not removed: {_some(left)}. The controllers stay stopped. "
                "Uninstall again to continue from here"
            )
        self.report(f"kept: {len(inventory.jobs)} SlurmJobs and the CRDs; a new installation uses them again")

    async def _inventory(self) -> InstalledObjects:
        """List everything, so that nothing is removed before all of it can be read."""
        jobs = [item async for item in self._jobs()]
        clusters = [item async for item in self.objects.list_all(CLUSTERS)]
        # A limited release has no resourced: virtual nodes belong to another installation.
        nodes = [] if self.watched else [node async for node in self._nodes()]
        volumes = [] if self.watched else [item async for item in self._volumes()]
        pods = await submitted_pods(
            self.objects, [node["metadata"]["name"] for node in nodes if is_virtual(node)]
        )
        return InstalledObjects(jobs, await self._companions(jobs), clusters, nodes, volumes, pods)

    # -- jobs

    async def _cancel(self) -> None:
        """Delete unfinished SlurmJobs, and pods that run as jobs: the controllers cancel the jobs of both.

        One that its own controller makes again meanwhile, such as a Deployment's, is reported as left.
        """
        left = [job async for job in self._jobs() if not is_finished(job)]
        pods_left = await self._submitted_pods()
        failed = [
            *await failures_of(left, self._delete, described),
            *await failures_of(pods_left, self._delete_pod, str),
        ]
        if failed:
            raise NotUninstalled(f"{len(failed)} SlurmJobs and pods are not deleted: {_some(failed)}")
        self.report(f"cancelling the jobs of {len(left)} SlurmJobs and {len(pods_left)} pods")

        async def none_is_left() -> bool:
            nonlocal left, pods_left
            uids = {job["metadata"]["uid"] for job in left} | {pod.uid for pod in pods_left}
            left = [job async for job in self._jobs() if job["metadata"]["uid"] in uids]
            pods_left = [pod for pod in await self._submitted_pods() if pod.uid in uids]
            return not left and not pods_left

        if not await becomes_true(none_is_left, self.cancel_within_s):
            raise NotUninstalled(
                f"{len(left) + len(pods_left)} jobs are not cancelled after {self.cancel_within_s:.0f} s: "
                f"{'; '.join([*map(described, left), *map(str, pods_left)])}. "
                "See why with `kubectl get slurmjobs -A -o wide` and `kubectl describe pod`, or set "
                "uninstall.jobs to Keep"
            )

    async def _submitted_pods(self) -> list[SubmittedPod]:
        """A limited release has no resourced: such pods belong to another installation."""
        if self.watched:
            return []
        nodes = self.objects.list_metadata(ResourcePath(kinds.NODE), {"labelSelector": LABEL_VIRTUAL})
        return await submitted_pods(self.objects, [node.name async for node in nodes])

    async def _delete(self, job: Object) -> None:
        await self.objects.delete(_place(job), uid=job["metadata"]["uid"])

    async def _delete_pod(self, pod: SubmittedPod) -> None:
        await self.objects.delete(pod.path, uid=pod.uid)

    async def _release_job(self, companions: Companions, job: Object) -> None:
        """Delete its companions, mark its status as stale, and lift its finalizer."""
        newest = job
        if not is_finished(job):
            self.report(f"left in Slurm: {described(job)}")
            namespace = job["metadata"]["namespace"]
            for pod in companions.get((namespace, job["metadata"]["uid"]), ()):
                await self.objects.delete(
                    ResourcePath(kinds.POD, pod.name, namespace), uid=pod.uid, gracePeriodSeconds=0
                )
            newest = await self._mark_stale(job)
        await self._lift(_place(job), frozenset({FINALIZER}), newest)

    async def _companions(self, jobs: Iterable[Object]) -> Companions:
        """Those of unfinished jobs, by namespace and owner: one list, not one for each job."""
        unfinished = {
            (job["metadata"]["namespace"], job["metadata"]["uid"]) for job in jobs if not is_finished(job)
        }
        companions: Companions = {}
        for namespace in (self.watched or ("",)) if unfinished else ():
            selection = {"labelSelector": LABEL_JOB_UID}
            async for pods, _ in self.objects.pages(ResourcePath(kinds.POD, namespace=namespace), selection):
                for metadata in (pod["metadata"] for pod in pods):
                    owner = (metadata["namespace"], metadata["labels"][LABEL_JOB_UID])
                    owners = {reference["uid"] for reference in metadata.get("ownerReferences", [])}
                    if owner in unfinished and owner[1] in owners:
                        companions.setdefault(owner, []).append(PodRef(metadata["name"], metadata["uid"]))
        return companions

    async def _mark_stale(self, job: Object) -> Object:
        """Record that its status is not updated any more.

        The whole status is applied by the operator's field manager: the operator of a new installation could
        not withdraw fields of another manager.
        """
        stale = {
            "type": "Synced",
            "status": "False",
            "reason": "Uninstalled",
            "message": "Red Box was uninstalled before the job had ended: see Slurm for its result",
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        before = job.get("status", {})
        others = [item for item in before.get("conditions", []) if item["type"] != stale["type"]]
        status = {**before, "conditions": [*others, stale]}
        try:
            return await self.objects.apply_status(_place(job), status, uid=job["metadata"]["uid"])
        except ApiRefused as refusal:
            self.report(f"its status is not marked as stale: {refusal}")
            return job

    async def _jobs(self) -> AsyncIterator[Object]:
        for kind in RESOURCES:
            for namespace in self.watched or ("",):
                where = ResourcePath(kind, "", namespace)
                async for job in if_served(where, self.objects.list_all(where)):
                    yield {**trimmed(job), "kind": kind}

    # -- clusters, nodes and volumes

    async def _release_cluster(self, cluster: Object) -> None:
        """An operator of other namespaces has its own finalizer, which stays."""
        limited = cluster_finalizer(self.namespace, limited=bool(self.watched))
        where = replace(CLUSTERS, name=cluster["metadata"]["name"])
        await self._lift(where, frozenset({CLUSTER_FINALIZER, limited}), cluster)

    async def _clean_node(self, node: Object) -> None:
        """Delete a virtual node; remove from any other node what was published on it."""
        metadata, where = node["metadata"], ResourcePath(kinds.NODE, node["metadata"]["name"])
        if is_virtual(node):
            await self.objects.delete(ResourcePath(kinds.LEASE, where.name, HEARTBEATS))
            await self.objects.delete(where, uid=metadata["uid"])  # last: another run finds the rest by it
            self.report(f"removed: virtual node {where.name}")
            return
        published, resources = withdrawn(node)
        if published:
            await self.objects.merge(where, {"metadata": published})
        if resources:
            await self.objects.merge(where, {"status": resources}, subresource="status")

    async def _nodes(self) -> AsyncIterator[Object]:
        """Those with something of ours."""
        async for node in self.objects.list_all(ResourcePath(kinds.NODE)):
            if is_virtual(node) or any(withdrawn(node)):
                yield reduced(node)

    async def _volumes(self) -> AsyncIterator[Object]:
        """Those that resourced made; a hook that may not list them has none to release."""
        try:
            async for volume in self.objects.list_all(ResourcePath(kinds.PERSISTENT_VOLUME)):
                if FINALIZER_VOLUME in (volume["metadata"].get("finalizers") or ()):
                    yield {"metadata": volume["metadata"]}
        except ApiRefused as refusal:
            if refusal.status != HTTPStatus.FORBIDDEN:
                raise

    async def _release_volume(self, volume: Object) -> None:
        """Its folder stays, and a new installation serves it again."""
        where = ResourcePath(kinds.PERSISTENT_VOLUME, volume["metadata"]["name"])
        await self._lift(where, frozenset({FINALIZER_VOLUME}), volume)

    async def _lift(self, where: ResourcePath, own: frozenset[str], newest: Object | None) -> None:
        """Lift our finalizers, again from the newest version where the object has changed."""
        for _ in range(TRIES):
            finalizers = (newest or {}).get("metadata", {}).get("finalizers", [])
            others = [item for item in finalizers if item not in own]
            if newest is None or others == finalizers:
                return
            version = newest["metadata"]["resourceVersion"]
            if await self.objects.set_finalizers(where, others, resource_version=version) is not None:
                return
            newest = await self.objects.get(where)
        raise ApiRefused(HTTPStatus.CONFLICT, f"it has changed during each of {TRIES} tries")

    # -- controllers

    @asynccontextmanager
    async def _controllers_stopped(self) -> AsyncIterator[None]:
        """Stop both and wait until neither can write; start them again if the body fails."""
        before: dict[str, int] = {}
        try:
            for name in CONTROLLERS:
                before |= await self._scaled(name, 0)
            for name in before:
                await self._stopped(name)
            yield
        except (ApiError, NotUninstalled):
            for name, replicas in before.items():
                await self._scaled(name, replicas)
            raise

    async def _scaled(self, name: str, replicas: int) -> dict[str, int]:
        """Scale a Deployment; returns its replicas before, by name, if it exists."""
        where = ResourcePath(kinds.DEPLOYMENT, name, self.namespace)
        found = await self.objects.get(where)
        if found is None:
            return {}
        await self.objects.merge(where, {"spec": {"replicas": replicas}}, subresource="scale")
        return {name: int(found["spec"]["replicas"])}

    async def _stopped(self, name: str) -> None:
        observation = LeaseObservation()

        async def has_ended() -> bool:
            free = observation.is_free(await self.objects.get(self._lease(name)))
            return free and not await self._has_pods(name)

        if not await becomes_true(has_ended, STOP_WITHIN_S):
            raise NotUninstalled(
                f"{name} has not stopped after {STOP_WITHIN_S:.0f} s: is its node away? "
                f"See `kubectl -n {self.namespace} get pods -o wide`"
            )

    async def _has_pods(self, name: str) -> bool:
        selection = {"labelSelector": f"app.kubernetes.io/name={name}"}
        pods = ResourcePath(kinds.POD, namespace=self.namespace)
        return any([items async for items, _ in self.objects.pages(pods, selection)])

    async def _free(self, name: str) -> None:
        await self.objects.delete(self._lease(name))

    def _lease(self, name: str) -> ResourcePath:
        return ResourcePath(kinds.LEASE, name, self.namespace)


def trimmed(job: Object) -> Object:
    """A SlurmJob without script and managedFields: those of ten thousand would fill the hook's memory."""
    metadata = {name: job["metadata"][name] for name in NEEDED if name in job["metadata"]}
    spec = {"cluster": job.get("spec", {}).get("cluster")}
    return {"metadata": metadata, "spec": spec, "status": job.get("status", {})}


def is_finished(job: Object) -> bool:
    """Whether its job in Slurm has ended, or never existed."""
    return job.get("status", {}).get("phase") in FINISHED_PHASES


def described(job: Object) -> str:
    """A SlurmJob in one phrase: name, job, cluster, phase."""
    metadata, status = job["metadata"], job.get("status", {})
    number = f"job {status['jobID']}" if status.get("jobID") else "no job id yet"
    cluster = status.get("cluster") or job.get("spec", {}).get("cluster") or "an unknown cluster"
    return (
        f"{metadata['namespace']}/{metadata['name']}: {number} on {cluster}, {status.get('phase', 'Pending')}"
    )


def _some(failed: Sequence[str]) -> str:
    more = len(failed) - NAMED_AT_MOST
    return "; ".join(failed[:NAMED_AT_MOST]) + (f"; and {more} more" if more > 0 else "")


def _place(job: Object) -> ResourcePath:
    return ResourcePath(job["kind"], job["metadata"]["name"], job["metadata"]["namespace"])
