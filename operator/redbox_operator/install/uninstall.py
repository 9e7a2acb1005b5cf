"""Takes Red Box out of a cluster, so that nothing waits for a controller that is gone.

It runs before the controllers' objects are deleted (the chart's hook), while both of them still work: jobs
are cancelled by them, if at all. Only then they are stopped, for one that runs would make again what is
removed here. Whatever fails before the first thing is removed starts them again. Whatever fails later keeps
nothing else from being removed; it is named at the end, and another run goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

from redbox_kube.api.objects import ApiError, ApiRefused, Object, ObjectClient, ResourcePath
from redbox_kube.names import API_VERSION, LABEL_JOB_UID, LABEL_VIRTUAL
from redbox_kube.runtime.waiting import becomes_true
from redbox_operator.api.constants import CLUSTER_FINALIZER, FINALIZER, cluster_finalizer
from redbox_operator.api.crds import all_crds
from redbox_operator.install.parallel import Operation, failures_of
from redbox_operator.slurmjob.optional_kinds import if_served

CLUSTERS = ResourcePath("SlurmCluster", api_version=API_VERSION)
CONTROLLERS = ("redbox-operator", "redbox-resourced")
LEASES = "coordination.k8s.io/v1"
HEARTBEATS = "kube-node-lease"
PARTITION_KEY = ".redbox.dev/"
FINISHED_PHASES = frozenset({"Succeeded", "Failed", "Cancelled"})
CANCEL_WITHIN_S = 270.0  # Helm waits for a hook for 300 s
STOP_WITHIN_S = 60.0
NEEDED = ("name", "namespace", "uid", "resourceVersion", "finalizers")
TRIES = 5
NAMED_AT_MOST = 20

Say = Callable[[str], None]


class JobsPolicy(StrEnum):
    """What becomes of jobs in Slurm."""

    KEEP = "Keep"
    CANCEL = "Cancel"


class NotUninstalled(Exception):
    """Something is still there; the message says what, and why."""


class Pod(NamedTuple):
    """Exactly which pod."""

    name: str
    uid: str


Companions = dict[tuple[str, str], list[Pod]]
"""By their job's namespace and uid."""


@dataclass(frozen=True)
class Inventory:
    """What is there once nobody makes more of it."""

    jobs: Sequence[Object]
    companions: Companions
    clusters: Sequence[Object]
    nodes: Sequence[Object]


@dataclass(frozen=True)
class Uninstall:
    """Where Red Box is, what it is to leave, and whom to tell."""

    objects: ObjectClient
    namespace: str
    watched: Sequence[str]
    """Namespaces that the operator was limited to; empty: all."""
    jobs: JobsPolicy
    cancel_within_s: float
    say: Say
    kinds: Sequence[ResourcePath] = field(default_factory=lambda: tuple(_kinds_of_jobs()))

    async def run(self) -> None:
        """All of it. What is done already is not done again, so that it may be repeated after a failure."""
        if self.jobs is JobsPolicy.CANCEL:
            await self._cancel()
        async with self._controllers_stopped():
            found = await self._found()
        left = [
            *await failures_of(self._of_jobs(found)),
            *await failures_of(self._of_clusters(found)),
            *await failures_of(self._of_nodes(found)),
            *await failures_of(Operation(f"Lease {name}", partial(self._free, name)) for name in CONTROLLERS),
        ]
        if left:
            for one in left:
                self.say(f"not removed: {one}")
            raise NotUninstalled(
                f"all is removed but for {len(left)}: {_some(left)}. The controllers stay stopped: uninstall "
                "once more, and it goes on from here"
            )
        told_jobs = f"{len(found.jobs)} SlurmJobs and the kinds (CRDs)"
        self.say(f"kept: {told_jobs}; a new installation takes them up again")

    async def _found(self) -> Inventory:
        """Everything that there is to do, so that nothing is removed before all of it can be read."""
        jobs = [one async for one in self._jobs()]
        clusters = [one async for one in self.objects.list_all(CLUSTERS)]
        # Limited, there was no resourced: the nodes are another installation's.
        nodes = [] if self.watched else [one async for one in self.objects.list_all(ResourcePath("Node"))]
        return Inventory(jobs, await self._companions(jobs), clusters, nodes)

    # ------------------------------------------------------------------------------------------ jobs
    async def _cancel(self) -> None:
        """Delete the SlurmJobs that have not ended: the operator cancels their jobs, and lets go of them."""
        ending = [one async for one in self._jobs() if not is_finished(one)]
        failed = await failures_of(Operation(described(one), partial(self._delete, one)) for one in ending)
        if failed:
            raise NotUninstalled(f"{len(failed)} SlurmJobs are not deleted: {_some(failed)}")
        self.say(f"cancelling the jobs of {len(ending)} SlurmJobs")
        left = ending

        async def none_is_left() -> bool:
            nonlocal left
            uids = {job["metadata"]["uid"] for job in left}
            left = [one async for one in self._jobs() if one["metadata"]["uid"] in uids]
            return not left

        if not await becomes_true(none_is_left, self.cancel_within_s):
            raise NotUninstalled(
                f"{len(left)} jobs are not cancelled after {self.cancel_within_s:.0f} s: "
                f"{'; '.join(map(described, left))}. "
                "See why with `kubectl get slurmjobs -A -o wide`, or set uninstall.jobs to Keep"
            )

    async def _delete(self, job: Object) -> None:
        await self.objects.delete(_place(job), uid=job["metadata"]["uid"])

    def _of_jobs(self, found: Inventory) -> Iterator[Operation]:
        for job in found.jobs:
            companions = found.companions.get((job["metadata"]["namespace"], job["metadata"]["uid"]), ())
            yield Operation(f"the finalizer of {described(job)}", partial(self._release_job, job, companions))

    async def _release_job(self, job: Object, companions: Sequence[Pod]) -> None:
        """Lift its finalizer; companions go first, for nobody would make them again."""
        newest = job
        if not is_finished(job):
            self.say(f"left in Slurm: {described(job)}")
            for pod in companions:
                where = ResourcePath("Pod", pod.name, job["metadata"]["namespace"])
                await self.objects.delete(where, uid=pod.uid, grace_s=0)
            newest = await self._tell_stale(job)
        await self._lift(_place(job), frozenset({FINALIZER}), newest)

    async def _companions(self, jobs: Iterable[Object]) -> Companions:
        """Those of jobs that have not ended, by namespace and owner: one list, not one for each job."""
        unfinished = {
            (one["metadata"]["namespace"], one["metadata"]["uid"]) for one in jobs if not is_finished(one)
        }
        companions: Companions = {}
        for namespace in (self.watched or ("",)) if unfinished else ():
            selection = {"labelSelector": LABEL_JOB_UID}
            async for pods, _ in self.objects.pages(ResourcePath("Pod", namespace=namespace), selection):
                for metadata in (pod["metadata"] for pod in pods):
                    owner = (metadata["namespace"], metadata["labels"][LABEL_JOB_UID])
                    owners = {one["uid"] for one in metadata.get("ownerReferences", [])}
                    if owner in unfinished and owner[1] in owners:
                        companions.setdefault(owner, []).append(Pod(metadata["name"], metadata["uid"]))
        return companions

    async def _tell_stale(self, job: Object) -> Object:
        """Its status stays as it was, and nobody brings it up to date.

        All of it is said as the operator says it, by its field manager: what another owned, the operator of
        a new installation could not withdraw.
        """
        stale = {
            "type": "Synced",
            "status": "False",
            "reason": "Uninstalled",
            "message": "Red Box was uninstalled while the job had not ended: ask Slurm what became of it",
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        before = job.get("status", {})
        others = [one for one in before.get("conditions", []) if one["type"] != stale["type"]]
        status = {**before, "conditions": [*others, stale]}
        try:
            return await self.objects.apply_status(_place(job), status, uid=job["metadata"]["uid"])
        except ApiRefused as refusal:
            self.say(f"its status does not say so: {refusal}")
            return job

    async def _jobs(self) -> AsyncIterator[Object]:
        for kind in self.kinds:
            for namespace in self.watched or ("",):
                where = ResourcePath(kind.kind, "", namespace, kind.api_version)
                async for job in if_served(where, self.objects.list_all(where)):
                    yield {**trimmed(job), "kind": kind.kind, "apiVersion": kind.api_version}

    # ------------------------------------------------------------------------------- clusters and nodes
    def _of_clusters(self, found: Inventory) -> Iterator[Operation]:
        """An operator of other namespaces has a finalizer of its own, which stays."""
        limited = cluster_finalizer(self.namespace, limited=bool(self.watched))
        own = frozenset({CLUSTER_FINALIZER, limited})
        for cluster in found.clusters:
            where = replace(CLUSTERS, name=cluster["metadata"]["name"])
            yield Operation(
                f"the finalizer of SlurmCluster {where.name}", partial(self._lift, where, own, cluster)
            )

    def _of_nodes(self, found: Inventory) -> Iterator[Operation]:
        for node in found.nodes:
            yield Operation(f"node {node['metadata']['name']}", partial(self._clean_node, node))

    async def _clean_node(self, node: Object) -> None:
        """A virtual node goes; from another goes what was published on it."""
        metadata, where = node["metadata"], ResourcePath("Node", node["metadata"]["name"])
        if LABEL_VIRTUAL in metadata.get("labels", {}):
            await self.objects.delete(ResourcePath("Lease", where.name, HEARTBEATS, LEASES))
            await self.objects.delete(where, uid=metadata["uid"])  # last: it is what another run would find
            self.say(f"removed: virtual node {where.name}")
            return
        published, resources = withdrawn(node)
        if published:
            await self.objects.merge(where, {"metadata": published})
        if resources:
            await self.objects.merge(where, {"status": resources}, subresource="status")

    async def _lift(self, where: ResourcePath, own: frozenset[str], newest: Object | None) -> None:
        for _ in range(TRIES):
            finalizers = (newest or {}).get("metadata", {}).get("finalizers", [])
            others = [one for one in finalizers if one not in own]
            if newest is None or others == finalizers:
                return
            version = newest["metadata"]["resourceVersion"]
            if await self.objects.set_finalizers(where, others, resource_version=version) is not None:
                return
            newest = await self.objects.get(where)
        raise ApiRefused(HTTPStatus.CONFLICT, "it changes all the time")

    # ------------------------------------------------------------------------------------- controllers
    @asynccontextmanager
    async def _controllers_stopped(self) -> AsyncIterator[None]:
        """Stop both and wait until neither can write; they run again if what is done inside fails."""
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
        """How many there were, by the Deployment's name, if there is one."""
        where = ResourcePath("Deployment", name, self.namespace, "apps/v1")
        found = await self.objects.get(where)
        if found is None:
            return {}
        await self.objects.merge(where, {"spec": {"replicas": replicas}}, subresource="scale")
        return {name: int(found["spec"]["replicas"])}

    async def _stopped(self, name: str) -> None:
        holding = LeaseObservation()

        async def has_ended() -> bool:
            free = holding.is_over(await self.objects.get(self._lease(name)))
            return free and not await self._has_pods(name)

        if not await becomes_true(has_ended, STOP_WITHIN_S):
            raise NotUninstalled(
                f"{name} has not stopped after {STOP_WITHIN_S:.0f} s: is its node away? "
                f"See `kubectl -n {self.namespace} get pods -o wide`"
            )

    async def _has_pods(self, name: str) -> bool:
        selection = {"labelSelector": f"app.kubernetes.io/name={name}"}
        pages = self.objects.pages(ResourcePath("Pod", namespace=self.namespace), selection)
        return any([items async for items, _ in pages])

    async def _free(self, name: str) -> None:
        await self.objects.delete(self._lease(name))

    def _lease(self, name: str) -> ResourcePath:
        return ResourcePath("Lease", name, self.namespace, LEASES)


@dataclass
class LeaseObservation:
    """A Lease as it is looked at: over when it is free, or was not renewed for its own time."""

    _record: tuple[str, str] = ("", "")
    _since: float = 0.0

    def is_over(self, lease: Object | None) -> bool:
        spec = (lease or {}).get("spec", {})
        record = (spec.get("holderIdentity") or "", spec.get("renewTime") or "")
        now = asyncio.get_running_loop().time()
        if record != self._record:
            self._record, self._since = record, now
        return not record[0] or now - self._since > float(spec.get("leaseDurationSeconds") or 0)


def trimmed(job: Object) -> Object:
    """A SlurmJob without its script and its managedFields: of ten thousand they fill the hook's memory."""
    metadata = {name: job["metadata"][name] for name in NEEDED if name in job["metadata"]}
    spec = {"cluster": job.get("spec", {}).get("cluster")}
    return {"metadata": metadata, "spec": spec, "status": job.get("status", {})}


def is_finished(job: Object) -> bool:
    """Whether its job in Slurm has ended, or never was."""
    return job.get("status", {}).get("phase") in FINISHED_PHASES


def described(job: Object) -> str:
    """A SlurmJob in one phrase: who, which job, where."""
    metadata, status = job["metadata"], job.get("status", {})
    number = f"job {status['jobID']}" if status.get("jobID") else "no job id yet"
    cluster = status.get("cluster") or job.get("spec", {}).get("cluster") or "an unknown cluster"
    return (
        f"{metadata['namespace']}/{metadata['name']}: {number} on {cluster}, {status.get('phase', 'Pending')}"
    )


def _some(failed: Sequence[str]) -> str:
    more = len(failed) - NAMED_AT_MOST
    return "; ".join(failed[:NAMED_AT_MOST]) + (f"; and {more} more" if more > 0 else "")


def withdrawn(node: Object) -> tuple[Object, Object]:
    """What to take from a gateway: labels and annotations, and resources, each as null."""
    metadata, status = node["metadata"], node.get("status", {})
    return _nulls(metadata, "labels", "annotations"), _nulls(status, "capacity", "allocatable")


def _nulls(holder: Object, *names: str) -> Object:
    found = {name: [key for key in holder.get(name) or {} if PARTITION_KEY in key] for name in names}
    return {name: dict.fromkeys(keys) for name, keys in found.items() if keys}


def _place(job: Object) -> ResourcePath:
    return ResourcePath(job["kind"], job["metadata"]["name"], job["metadata"]["namespace"], job["apiVersion"])


def _kinds_of_jobs() -> list[ResourcePath]:
    return [
        ResourcePath(crd["spec"]["names"]["kind"], api_version=f"{crd['spec']['group']}/{version['name']}")
        for crd in all_crds()
        if crd["spec"]["scope"] == "Namespaced"
        for version in crd["spec"]["versions"]
        if version["storage"]
    ]
