"""Keeps every pod on a virtual node as its job is: submitted once, followed, ended, and let go when deleted.

Watches are hints: whatever changes anywhere, the pod's place is looked at again, and one look decides by the
whole truth. One pod is never looked at twice at once, and none waits for another's red-box. Nothing is kept
that a restart would miss: what was submitted is told by the pod's own condition, and by red-box.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import defaultdict
from collections.abc import Callable
from http import HTTPStatus

import structlog

from redbox_api.models import Job, OwnerRef, Phase
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import ApiError, ApiRefused, Object, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_kube.slurm_cluster import Delivery
from redbox_resourced.partitions.slurmclusters import Clusters, ServedNode
from redbox_resourced.pods import pod_status
from redbox_resourced.pods.exit_status import JobRefusal
from redbox_resourced.pods.informer import PodsOfNodes
from redbox_resourced.pods.job_feed import PodJobFeed
from redbox_resourced.pods.pod_view import BoundPod, Role, digest_of
from redbox_resourced.pods.submission import Never, NotYet, Submission, key_of
from redbox_shared.job_end import LOST_AFTER_S

log = structlog.get_logger(__name__)
AT_ONCE = 32
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 60.0
SAID_AFTER = 5  # tries, about a second: the operator names a companion a moment after it made it


RedboxCaller = tuple[str, str, str]
"""Cluster, namespace, account: a red-box limits each, and none waits for another."""


class VirtualPods:
    """Looks at pods, and does what each look shows to be due."""

    def __init__(
        self,
        objects: ObjectClient,
        clusters: Clusters,
        submission: Submission,
        host: str,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bound = PodsOfNodes(objects, self.look_at, self._gone)
        self.when_gone: list[Callable[[BoundPod], None]] = []
        self._objects = objects
        self._clusters = clusters
        self._submission = submission
        self._host = host
        self._now = now
        self._rows: dict[str, tuple[PodJobFeed, asyncio.Task[None]]] = {}
        self._looking: set[Place] = set()
        self._look_again: set[Place] = set()
        self._later: dict[Place, asyncio.TimerHandle] = {}
        self._tries: dict[Place, int] = {}
        self._troubles = GroupedWarnings("pods not kept")
        self._verified: set[str] = set()  # uids of pods found to be companions, until their status says it
        self._missing_since: dict[str, float] = {}  # by uid, where red-box had the job and shows none
        self._refusals: dict[str, JobRefusal] = {}  # by uid, until their status says it: never asked twice
        self._writing = asyncio.Semaphore(AT_ONCE)
        self._asking: defaultdict[RedboxCaller, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(AT_ONCE)
        )
        self._group = asyncio.TaskGroup()

    async def run(self) -> None:
        """Keep all pods until cancelled."""
        async with self._group:
            self._group.create_task(self.bound.run())
            while True:
                self._follow_clusters()
                await asyncio.sleep(1.0)

    def look_at(self, place: Place) -> None:
        """Something about this pod has changed."""
        if timer := self._later.pop(place, None):
            timer.cancel()
        if place not in self.bound.pods:
            self._tries.pop(place, None)
            self._troubles.mended("/".join(place))
        elif place in self._looking:
            self._look_again.add(place)
        else:
            self._looking.add(place)
            self._group.create_task(self._look_until_settled(place))

    def row_of(self, pod: BoundPod) -> Job | None:
        """The newest that is known of a pod's job."""
        node = self._clusters.of_node(pod.node)
        rows = self._rows_of(node) if node else None
        return rows.of_pod(pod) if rows else None

    # -- the red-boxes

    def _follow_clusters(self) -> None:
        """One watch of jobs for each client that there is."""
        served = bool(self.bound.by_key)  # jobs of one that is Virtual no more are followed to their end
        followed = {
            name: one
            for name, one in self._clusters.followed.items()
            if served or one.cluster.spec.delivery is Delivery.VIRTUAL
        }
        for name, (rows, task) in list(self._rows.items()):
            if name not in followed or followed[name].client is not rows.client:
                task.cancel()
                del self._rows[name]
        for name, one in followed.items():
            if name not in self._rows and self.bound.settled:
                rows = PodJobFeed(name, one.client, self.bound.by_key, self._job_changed, self._look_at_all)
                self._rows[name] = rows, self._group.create_task(rows.run())
                self._look_at_all()

    def _rows_of(self, node: ServedNode) -> PodJobFeed | None:
        rows, _ = self._rows.get(node.cluster.name, (None, None))
        return rows

    def _job_changed(self, key: str) -> None:
        for place in tuple(self.bound.by_key.get(key, ())):
            self.look_at(place)

    def _look_at_all(self) -> None:
        """A red-box was heard (again): what it could not do before may go on."""
        for place in tuple(self.bound.pods):
            self.look_at(place)

    def _gone(self, pod: BoundPod) -> None:
        self._forget(pod)
        for told in self.when_gone:
            told(pod)

    # -- one pod

    async def _look_until_settled(self, place: Place) -> None:
        try:
            pause = await self._look_or_fail(place)
            while place in self._look_again:
                self._look_again.discard(place)
                pause = await self._look_or_fail(place)
        finally:
            self._looking.discard(place)
        if pause is None:
            self._tries.pop(place, None)
        elif place in self.bound.pods:
            loop = asyncio.get_running_loop()
            self._later[place] = loop.call_later(pause, self.look_at, place)

    async def _look_or_fail(self, place: Place) -> float | None:
        """One look; in how many seconds the next one is due, None if only a change makes it due."""
        pod = self.bound.pods.get(place)
        if pod is None:
            return None
        try:
            pause = await self._look_or_say_why(pod)
        except (ApiError, TimeoutError) as error:
            self._troubles.failed("/".join(place), error)
            return self._pause(place)
        except Exception:
            # What one tenant wrote must not end what serves all.
            log.exception("pod", namespace=pod.namespace, name=pod.name)
            return self._pause(place)
        self._troubles.mended("/".join(place))
        return pause

    async def _look_or_say_why(self, pod: BoundPod) -> float | None:
        try:
            return await self._look(pod)
        except NotYet as problem:
            return await self._say_not_yet(pod, problem)
        except Never as never:
            self._refusals[pod.uid] = never.refusal
            await self._say_never(pod, never.refusal)
            return None

    async def _look(self, pod: BoundPod) -> float | None:
        node = self._clusters.of_node(pod.node)
        if pod.is_being_deleted:  # also where its SlurmCluster is gone: nobody else could let it go
            await self._let_go(pod)
        elif pod.has_ended:
            self._forget(pod)
        elif node is None:
            return None
        elif refusal := self._refusals.get(pod.uid):
            await self._say_never(pod, refusal)
        elif pod.role is Role.JOB:
            return await self._keep_job(pod, node)
        else:
            said = pod_status.daemon if pod.role is Role.DAEMON else pod_status.stranger
            await self._write(pod, said(pod, self._host))
        return None

    async def _keep_job(self, pod: BoundPod, node: ServedNode) -> float | None:
        rows = self._rows_of(node)
        if rows is None or rows.fault:
            await self._wait_for_redbox(pod, node, rows)
            return None
        job = rows.of_pod(pod)
        is_known = pod.is_submitted or pod.uid in self._verified
        if job is None or not is_known or job.phase is Phase.SUBMITTING:
            async with self._asking[node.cluster.name, pod.namespace, pod.account]:
                job = await self._ask(pod, node, is_known=is_known and job is None)
            self._verified.add(pod.uid)
            rows.take(job)
        await self._write(pod, pod_status.of_job(pod, self._host, rows.of_pod(pod) or job))
        self._missing_since.pop(pod.uid, None)
        return self._pause((pod.namespace, pod.name)) if job.phase is Phase.SUBMITTING else None

    async def _ask(self, pod: BoundPod, node: ServedNode, *, is_known: bool) -> Job:
        if not is_known:
            return await self._submission.attach_or_submit(pod, node)
        return await self._submission.job_of_known(pod, node) or self._missing(pod, node)

    def _missing(self, pod: BoundPod, node: ServedNode) -> Job:
        """Lost, once it has been missing for long: a red-box may have lost its journal, and find it again."""
        now = self._now()
        if now - self._missing_since.setdefault(pod.uid, now) < LOST_AFTER_S:
            raise NotYet("NotKnown", f"the red-box of {node.cluster.name} does not know this job now")
        return _lost(pod, node)

    async def _wait_for_redbox(self, pod: BoundPod, node: ServedNode, rows: PodJobFeed | None) -> None:
        """It is looked at again once that red-box is heard; a job that it has already goes on meanwhile."""
        if rows is not None and not pod.is_submitted:
            sentence = f"the red-box of {node.cluster.name} cannot be reached: {rows.fault}"
            said = pod_status.waiting(pod, self._host, reason="RedboxUnreachable", message=sentence)
            await self._write(pod, said)

    async def _say_not_yet(self, pod: BoundPod, problem: NotYet) -> float:
        place = (pod.namespace, pod.name)
        pause = problem.after_s or self._pause(place)
        if self._tries.get(place, 0) > SAID_AFTER and not pod.is_submitted:
            said = pod_status.waiting(pod, self._host, reason=problem.reason, message=str(problem))
            with contextlib.suppress(ApiError):
                await self._write(pod, said)
        return pause

    async def _say_never(self, pod: BoundPod, refusal: JobRefusal) -> None:
        await self._write(pod, pod_status.refused(pod, self._host, refusal))

    async def _let_go(self, pod: BoundPod) -> None:
        """Nothing runs that would have to end first; the job is the SlurmJob's, and lives on."""
        async with self._writing:
            await self._objects.delete(_where(pod), uid=pod.uid, grace_s=0)

    def _forget(self, pod: BoundPod) -> None:
        self._verified.discard(pod.uid)
        self._missing_since.pop(pod.uid, None)
        self._refusals.pop(pod.uid, None)
        for rows, _ in self._rows.values():
            rows.forget(pod)

    async def _write(self, pod: BoundPod, status: Object) -> None:
        """Say it, if it is not what the pod says already."""
        if digest_of(status) == pod.seen:
            return
        body = {"metadata": {"namespace": pod.namespace, "uid": pod.uid}, "status": status}
        async with self._writing:
            try:
                await self._objects.apply(_where(pod), body, subresource="status")
            except ApiRefused as refusal:  # gone, or another of its name: its own event will tell
                if refusal.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                    raise

    def _pause(self, place: Place) -> float:
        tries = self._tries[place] = self._tries.get(place, 0) + 1
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(tries - 1, 12))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 (spreads load)


def _where(pod: BoundPod) -> ResourcePath:
    return ResourcePath("Pod", pod.name, pod.namespace)


def _lost(pod: BoundPod, node: ServedNode) -> Job:
    """Red-box had it, and has it no more: what became of it is unknown."""
    cluster = node.cluster.name
    return Job(
        key=key_of(pod),
        attempt=pod.attempt,
        owner=OwnerRef(cluster=cluster, namespace=pod.namespace, account=pod.account),
        user="",
        phase=Phase.LOST,
        message=f"the red-box of {cluster} no longer knows this job: what became of it is unknown",
    )
