"""Takes Red Box out of a cluster, so that nothing waits for a controller that is gone.

It runs before the controllers' objects are deleted (the chart's hook), while both of them still work: jobs
are cancelled by them, if at all. Only then they are stopped, for one that runs would make again what is
removed here. Whatever fails before the first thing is removed starts them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from redbox_kube.names import API_VERSION, LABEL_JOB_UID, LABEL_VIRTUAL
from redbox_kube.objects import ApiError, ApiRefused, Object, Objects, Where
from redbox_kube.waiting import comes_true
from redbox_operator.crds import all_crds
from redbox_operator.known_names import CLUSTER_FINALIZER, FINALIZER

CONTROLLERS = ("redbox-operator", "redbox-resourced")
LEASES = "coordination.k8s.io/v1"
HEARTBEATS = "kube-node-lease"
PARTITION_KEY = ".redbox.dev/"
FINISHED_PHASES = frozenset({"Succeeded", "Failed", "Cancelled"})
CANCEL_WITHIN_S = 270.0  # Helm waits for a hook for 300 s
STOP_WITHIN_S = 60.0
TRIES = 5

Say = Callable[[str], None]


class Jobs(StrEnum):
    """What becomes of jobs in Slurm."""

    KEEP = "Keep"
    CANCEL = "Cancel"


class NotUninstalled(Exception):
    """Nothing was removed; the message says why."""


@dataclass(frozen=True)
class Uninstall:
    """Where Red Box is, what it is to leave, and whom to tell."""

    objects: Objects
    namespace: str
    watched: Sequence[str]
    """Namespaces that the operator was limited to; empty: all."""
    jobs: Jobs
    cancel_within_s: float
    say: Say
    kinds: Sequence[Where] = field(default_factory=lambda: tuple(_kinds_of_jobs()))

    async def run(self) -> None:
        """All of it. What is done already is not done again, so that it may be repeated after a failure."""
        if self.jobs is Jobs.CANCEL:
            await self._cancel()
        async with self._controllers_stopped():
            jobs = [one async for one in self._jobs()]  # asked for before anything is removed
            nodes = [one async for one in self.objects.list_all(Where("Node"))]
        await self._release_jobs(jobs)
        await self._release_clusters()
        await self._clean_nodes(nodes)
        for name in CONTROLLERS:
            await self.objects.delete(self._lease(name))
        self.say(f"kept: {len(jobs)} SlurmJobs and the kinds (CRDs); a new installation takes them up again")

    # ------------------------------------------------------------------------------------------ jobs
    async def _cancel(self) -> None:
        """Delete the SlurmJobs that have not ended: the operator cancels their jobs, and lets go of them."""
        ending = [one async for one in self._jobs() if not is_finished(one)]
        for job in ending:
            await self.objects.delete(_place(job), uid=job["metadata"]["uid"])
        self.say(f"cancelling the jobs of {len(ending)} SlurmJobs")
        left = ending

        async def none_is_left() -> bool:
            nonlocal left
            uids = {job["metadata"]["uid"] for job in left}
            left = [one async for one in self._jobs() if one["metadata"]["uid"] in uids]
            return not left

        if not await comes_true(none_is_left, self.cancel_within_s):
            raise NotUninstalled(
                f"{len(left)} jobs are not cancelled after {self.cancel_within_s:.0f} s: "
                f"{'; '.join(map(told, left))}. "
                "See why with `kubectl get slurmjobs -A -o wide`, or set uninstall.jobs to Keep"
            )

    async def _release_jobs(self, jobs: list[Object]) -> None:
        """Lift the finalizers; companions go first, for nobody would make them again."""
        for job in jobs:
            if not is_finished(job):
                self.say(f"left in Slurm: {told(job)}")
                await self._remove_companions(job)
                await self._tell_stale(job)
            await self._lift(_place(job), FINALIZER)

    async def _remove_companions(self, job: Object) -> None:
        uid, namespace = job["metadata"]["uid"], job["metadata"]["namespace"]
        selection = {"labelSelector": f"{LABEL_JOB_UID}={uid}"}
        async for pods, _ in self.objects.pages(Where("Pod", namespace=namespace), selection):
            for pod in pods:
                metadata = pod["metadata"]
                if any(owner["uid"] == uid for owner in metadata.get("ownerReferences", [])):
                    await self.objects.delete(
                        Where("Pod", metadata["name"], namespace), uid=metadata["uid"], grace_s=0
                    )

    async def _tell_stale(self, job: Object) -> None:
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
            await self.objects.apply_status(_place(job), status, uid=job["metadata"]["uid"])
        except ApiRefused as refusal:
            self.say(f"its status does not say so: {refusal}")

    async def _jobs(self) -> AsyncIterator[Object]:
        for kind in self.kinds:
            for namespace in self.watched or ("",):
                async for job in self.objects.list_all(Where(kind.kind, "", namespace, kind.api_version)):
                    yield {**job, "kind": kind.kind, "apiVersion": kind.api_version}

    # ------------------------------------------------------------------------------- clusters and nodes
    async def _release_clusters(self) -> None:
        """A limited installation shares them with others, whose finalizer it is too."""
        if self.watched:
            return
        async for cluster in self.objects.list_all(Where("SlurmCluster", api_version=API_VERSION)):
            name = cluster["metadata"]["name"]
            await self._lift(Where("SlurmCluster", name, api_version=API_VERSION), CLUSTER_FINALIZER)

    async def _clean_nodes(self, nodes: list[Object]) -> None:
        """Virtual nodes go; from others goes what was published on them."""
        for node in nodes:
            metadata, where = node["metadata"], Where("Node", node["metadata"]["name"])
            if LABEL_VIRTUAL in metadata.get("labels", {}):
                await self.objects.delete(where, uid=metadata["uid"])
                await self.objects.delete(Where("Lease", where.name, HEARTBEATS, LEASES))
                self.say(f"removed: virtual node {where.name}")
                continue
            published, resources = withdrawn(node)
            if published:
                await self.objects.merge(where, {"metadata": published})
            if resources:
                await self.objects.merge(where, {"status": resources}, subresource="status")

    async def _lift(self, where: Where, finalizer: str) -> None:
        for _ in range(TRIES):
            found = await self.objects.get(where)
            finalizers = (found or {}).get("metadata", {}).get("finalizers", [])
            if found is None or finalizer not in finalizers:
                return
            others = [one for one in finalizers if one != finalizer]
            version = found["metadata"]["resourceVersion"]
            if await self.objects.set_finalizers(where, others, resource_version=version) is not None:
                return
        self.say(f"not lifted: the finalizer of {where.kind} {where.name}, which changes all the time")

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
        where = Where("Deployment", name, self.namespace, "apps/v1")
        found = await self.objects.get(where)
        if found is None:
            return {}
        await self.objects.merge(where, {"spec": {"replicas": replicas}}, subresource="scale")
        return {name: int(found["spec"]["replicas"])}

    async def _stopped(self, name: str) -> None:
        holding = Holding()

        async def has_ended() -> bool:
            free = holding.is_over(await self.objects.get(self._lease(name)))
            return free and not await self._has_pods(name)

        if not await comes_true(has_ended, STOP_WITHIN_S):
            raise NotUninstalled(
                f"{name} has not stopped after {STOP_WITHIN_S:.0f} s: is its node away? "
                f"See `kubectl -n {self.namespace} get pods -o wide`"
            )

    async def _has_pods(self, name: str) -> bool:
        selection = {"labelSelector": f"app.kubernetes.io/name={name}"}
        pages = self.objects.pages(Where("Pod", namespace=self.namespace), selection)
        return any([items async for items, _ in pages])

    def _lease(self, name: str) -> Where:
        return Where("Lease", name, self.namespace, LEASES)


@dataclass
class Holding:
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


def is_finished(job: Object) -> bool:
    """Whether its job in Slurm has ended, or never was."""
    return job.get("status", {}).get("phase") in FINISHED_PHASES


def told(job: Object) -> str:
    """A SlurmJob in one phrase: who, which job, where."""
    metadata, status = job["metadata"], job.get("status", {})
    number = f"job {status['jobID']}" if status.get("jobID") else "no job id yet"
    cluster = status.get("cluster") or job.get("spec", {}).get("cluster") or "an unknown cluster"
    return (
        f"{metadata['namespace']}/{metadata['name']}: {number} on {cluster}, {status.get('phase', 'Pending')}"
    )


def withdrawn(node: Object) -> tuple[Object, Object]:
    """What to take from a gateway: labels and annotations, and resources, each as null."""
    metadata, status = node["metadata"], node.get("status", {})
    return _nulls(metadata, "labels", "annotations"), _nulls(status, "capacity", "allocatable")


def _nulls(holder: Object, *names: str) -> Object:
    found = {name: [key for key in holder.get(name) or {} if PARTITION_KEY in key] for name in names}
    return {name: dict.fromkeys(keys) for name, keys in found.items() if keys}


def _place(job: Object) -> Where:
    return Where(job["kind"], job["metadata"]["name"], job["metadata"]["namespace"], job["apiVersion"])


def _kinds_of_jobs() -> list[Where]:
    return [
        Where(crd["spec"]["names"]["kind"], api_version=f"{crd['spec']['group']}/{version['name']}")
        for crd in all_crds()
        if crd["spec"]["scope"] == "Namespaced"
        for version in crd["spec"]["versions"]
        if version["storage"]
    ]
