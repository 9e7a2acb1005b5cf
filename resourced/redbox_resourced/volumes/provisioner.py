"""The provisioner redbox.dev/directory: a folder on a Slurm cluster for each claim, and its PersistentVolume.

The folder is made with a token of the claim's service account, bound to a pod that uses the claim, so it
belongs to the Unix user that jobs of that account run as. Its handle is the claim's uid and the volume's name
follows from it: whatever crashes between the folder and the volume, the next try finds both. Of a released
volume with reclaimPolicy Delete first the folder is deleted, by red-box for resourced's own identity (role
volumes), and then the volume. Claims of other provisioners are only explained: most make no volume for a
virtual node, and the pod then waits without a node.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TypeVar

import structlog

from redbox_api.errors import Busy, NoSuchJob, RedboxError, Refused
from redbox_api.models import VolumeFolder, VolumeRequest
from redbox_clusters.names import FINALIZER_VOLUME
from redbox_clusters.redbox_token import RedboxToken, ServiceAccountName
from redbox_kube.api import kinds
from redbox_kube.api.informer import Informer, Place
from redbox_kube.api.objects import ApiError, ApiRefused, ObjectClient, ResourcePath
from redbox_kube.runtime.work_queue import WorkQueue
from redbox_resourced.nodes.node_view import read_node
from redbox_resourced.partitions.slurmclusters import ClusterConnection, ClusterRegistry
from redbox_resourced.volumes.claims import (
    ClaimView,
    StorageClassView,
    Unserviceable,
    check_claim,
    read_claim,
    read_class,
)
from redbox_resourced.volumes.consumers import find_consumer
from redbox_resourced.volumes.manifest import VolumeView, new_volume, read_volume
from redbox_resourced.volumes.names import ANNOTATION_ACCOUNT, PROVISIONER
from redbox_resourced.volumes.volume_events import DELETE_FAILED, FAILED, SUCCEEDED, VolumeEvents
from redbox_shared.backoff import Backoff
from redbox_shared.keyed_semaphores import FairSlots

log = structlog.get_logger(__name__)
View = TypeVar("View", ClaimView, VolumeView)
TOKEN_LIFETIME_S = 600  # the shortest that Kubernetes issues
BACKOFF = Backoff(1.0, 120.0)
AT_ONCE, OF_A_NAMESPACE, OF_AN_ACCOUNT = 32, 8, 4
"""Of the same red-box; a tenant makes as many accounts in a namespace as they like."""
DELETES_AT_ONCE, DELETES_OF_A_NAMESPACE, DELETES_OF_AN_ACCOUNT = 8, 4, 2
"""Beside the others: to delete a folder with many files takes long."""
FOREIGN_PATIENCE_S = 30.0
"""How long another provisioner has to make a volume for a virtual node: one of NFS does, in seconds."""


class DirectoryProvisioner:
    """Follows claims, classes and volumes; `run` it in a TaskGroup, beside the cluster registry."""

    def __init__(self, objects: ObjectClient, clusters: ClusterRegistry) -> None:
        self._objects = objects
        self._clusters = clusters
        self._events = VolumeEvents(objects)
        self._claims = Informer(
            objects,
            ResourcePath(kinds.PERSISTENT_VOLUME_CLAIM),
            reduced=read_claim,
            on_change=self._claims_changed,
        )
        self._classes = Informer(
            objects,
            ResourcePath(kinds.STORAGE_CLASS),
            reduced=read_class,
            on_change=lambda _: self._enqueue_all(),
        )
        self._volumes = Informer(
            objects,
            ResourcePath(kinds.PERSISTENT_VOLUME),
            reduced=read_volume,
            on_change=self._volumes_changed,
        )
        self._claim_queue: WorkQueue[Place] = WorkQueue()
        self._volume_queue: WorkQueue[Place] = WorkQueue()
        self._failures: Counter[ResourcePath] = Counter()  # in a row
        self._requested: defaultdict[Place, dict[str, tuple[ClaimView, str]]] = defaultdict(dict)
        """Claims without a volume for which a folder was requested, by uid, and of which SlurmCluster.

        If one is deleted, so is its folder.
        """
        self._foreign_since: dict[ResourcePath, float] = {}
        """Claims of other provisioners for virtual nodes, and when each was first seen."""
        self._cluster_names: frozenset[str] | None = None
        self._making: defaultdict[str, FairSlots] = defaultdict(
            lambda: FairSlots(AT_ONCE, OF_A_NAMESPACE, OF_AN_ACCOUNT)
        )
        """By SlurmCluster: a red-box that hangs delays the volumes of no other."""
        self._deleting: defaultdict[str, FairSlots] = defaultdict(
            lambda: FairSlots(DELETES_AT_ONCE, DELETES_OF_A_NAMESPACE, DELETES_OF_AN_ACCOUNT)
        )

    async def run(self) -> None:
        self._clusters.on_change.append(self._clusters_changed)
        async with asyncio.TaskGroup() as group:
            for informer in (self._classes, self._claims, self._volumes):
                group.create_task(informer.run())
            group.create_task(self._claim_queue.run(self._reconcile_claim, workers=None))
            group.create_task(self._volume_queue.run(self._reconcile_volume, workers=None))
            for informer in (self._classes, self._claims, self._volumes):
                await informer.listed.wait()
            self._enqueue_all()

    # -- changes

    def _claims_changed(self, places: set[Place]) -> None:
        for place in places:
            self._claim_queue.forget(place)
            self._claim_queue.add(place)

    def _volumes_changed(self, places: set[Place]) -> None:
        for place in places:
            self._volume_queue.forget(place)
            self._volume_queue.add(place)

    def _clusters_changed(self) -> None:
        """Partitions change often, and are nothing to a volume: only new SlurmClusters are."""
        names = frozenset(self._clusters.followed) if self._clusters.synced else None
        if names != self._cluster_names:
            self._cluster_names = names
            self._enqueue_all()

    def _enqueue_all(self) -> None:
        self._claims_changed(set(self._claims.items))
        self._volumes_changed(set(self._volumes.items))

    @property
    def _is_synced(self) -> bool:
        return self._clusters.synced and self._classes.listed.is_set() and self._volumes.listed.is_set()

    # -- claims

    async def _reconcile_claim(self, place: Place) -> None:
        claim: ClaimView | None = self._claims.items.get(place)
        due = {uid: requested for uid, (requested, _) in self._requested.get(place, {}).items()}
        if claim is not None:  # before those of its name that are bound or deleted, as the API server knows
            due = {claim.uid: claim} | {uid: other for uid, other in due.items() if uid != claim.uid}
        if not due:
            self._settled(ResourcePath(kinds.PERSISTENT_VOLUME_CLAIM, place[1], place[0]))
            return
        if not self._is_synced:
            return
        for each in due.values():
            pause = await self._tried(each, FAILED, self._provision)
            if pause is not None:
                self._claim_queue.add_later(place, pause)

    async def _provision(self, claim: ClaimView) -> None:
        if not claim.is_ours:
            await self._explain_foreign(claim)
            return
        if ("", claim.volume_name) in self._volumes.items:
            self._forget(claim)
            return
        if claim.uid in self._requested.get(claim.place, {}) and not await self._is_wanted(claim):
            await self._discard(claim)
            return
        storage_class: StorageClassView | None = self._classes.items.get(("", claim.class_name))
        if storage_class is None:
            raise Unserviceable(
                f"StorageClass {claim.class_name} is gone, or not of provisioner {PROVISIONER}: make it again"
            )
        if storage_class.waits and not claim.node:
            return
        check_claim(claim, storage_class)
        connection = await self._cluster_of(claim, storage_class)
        folder = await self._make_folder(claim, storage_class, connection)
        if not await self._is_wanted(claim):
            await self._discard(claim)
            return
        volume = new_volume(claim, storage_class, connection.cluster.name, folder)
        await self._objects.create(ResourcePath(kinds.PERSISTENT_VOLUME), volume)  # None: by an earlier try
        message = f"Made the folder {folder.path} on {connection.cluster.name} for volume {claim.volume_name}"
        await self._events.report(claim.path, claim.uid, SUCCEEDED, message)
        self._forget(claim)

    async def _explain_foreign(self, claim: ClaimView) -> None:
        """Report that no volume comes, if the provisioner has had its time and the node is a virtual one."""
        connection = self._clusters.of_node(claim.node)
        node = await self._objects.get(ResourcePath(kinds.NODE, claim.node)) if connection else None
        if connection is None or node is None or not read_node(node).is_virtual:
            return
        now = time.monotonic()
        left_s = self._foreign_since.setdefault(claim.path, now) + FOREIGN_PATIENCE_S - now
        if left_s > 0:
            self._claim_queue.add_later(claim.place, left_s)
            return
        raise Unserviceable(
            f"{claim.provisioner}, the provisioner of StorageClass {claim.class_name}, has made no volume "
            f"for the virtual node {claim.node}: make this claim again with a StorageClass of provisioner "
            f"{PROVISIONER}, or for a volume that the nodes of {connection.cluster.name} mount too"
        )

    async def _cluster_of(self, claim: ClaimView, storage_class: StorageClassView) -> ClusterConnection:
        """The Slurm cluster of the node that the scheduler chose, or that the class names."""
        name = storage_class.cluster
        if not name and not claim.node:
            raise Unserviceable(
                f"StorageClass {storage_class.name} binds at once and names no cluster: give it the "
                "parameter cluster, or volumeBindingMode: WaitForFirstConsumer"
            )
        if name and name not in self._clusters.followed:
            default = f"SlurmCluster {name}, which StorageClass {storage_class.name} names, does not exist"
            raise Unserviceable(self._clusters.invalid.get(name, default))
        if not claim.node:
            feed = self._clusters.followed[name]
            return ClusterConnection(feed.cluster, feed.client)
        connection = self._clusters.of_node(claim.node)
        node = await self._objects.get(ResourcePath(kinds.NODE, claim.node))
        # A virtual node that is gone says by its name where the pod was to run.
        if connection is None or (node is not None and not read_node(node).is_virtual):
            raise Unserviceable(
                f"the pod was put on node {claim.node}, which is not a virtual node: let the pod select a "
                "partition, and make this claim again"
            )
        if name not in {"", connection.cluster.name}:
            raise Unserviceable(
                f"StorageClass {storage_class.name} is for {name}, and the pod was put on node {claim.node} "
                f"of {connection.cluster.name}: let the pod select a partition of {name}, and make this "
                "claim again"
            )
        return connection

    async def _make_folder(
        self, claim: ClaimView, storage_class: StorageClassView, connection: ClusterConnection
    ) -> VolumeFolder:
        spec = connection.cluster.spec
        account = ServiceAccountName(claim.namespace, claim.account)
        request = VolumeRequest(claim=claim.name, group_shared=storage_class.group_shared)
        async with self._making[connection.cluster.name].of(claim.namespace, claim.account):
            pod = await find_consumer(self._objects, claim)
            token = RedboxToken(self._objects, account, spec.audience, pod, lifetime_s=TOKEN_LIFETIME_S)
            shown = await self._token(token, claim)
            self._requested[claim.place][claim.uid] = claim, connection.cluster.name
            return await connection.client.speaking_for(shown).put_volume(claim.uid, request)

    async def _token(self, token: RedboxToken, claim: ClaimView) -> RedboxToken:
        """The same, once it has been issued: a ServiceAccount that does not exist is the author's mistake."""
        try:
            await token()
        except ApiRefused as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            raise Unserviceable(
                f"namespace {claim.namespace} has no ServiceAccount {claim.account}: make it, or name "
                f"another one in the claim's annotation {ANNOTATION_ACCOUNT}"
            ) from refusal
        return token

    async def _is_wanted(self, claim: ClaimView) -> bool:
        """Whether the claim still exists, as the API server has it now."""
        found = await self._objects.get(claim.path)
        if found is None:
            return False
        metadata = found["metadata"]
        return metadata["uid"] == claim.uid and "deletionTimestamp" not in metadata

    async def _discard(self, claim: ClaimView) -> None:
        """Delete the folder of a claim that was deleted before it had a volume."""
        _, cluster = self._requested[claim.place][claim.uid]
        # A write without an answer may have made the volume: then its reclaimPolicy decides.
        if await self._objects.get(ResourcePath(kinds.PERSISTENT_VOLUME, claim.volume_name)) is None:
            await self._discard_folder(claim, cluster)
        self._forget(claim)

    async def _discard_folder(self, claim: ClaimView, cluster: str) -> None:
        """By the client that the SlurmCluster has now: the one that asked for the folder may be closed."""
        feed = self._clusters.followed.get(cluster)
        named = log.bind(namespace=claim.namespace, claim=claim.name, uid=claim.uid, slurmcluster=cluster)
        if feed is None and cluster in self._clusters.invalid:
            raise Unserviceable(self._clusters.invalid[cluster])
        if feed is None:
            named.warning("a folder may be left: the SlurmCluster of its deleted claim is gone")
            return
        try:
            async with self._deleting[cluster].of(claim.namespace, claim.account):
                await feed.client.delete_volume(claim.uid)
        except NoSuchJob:
            named.info("no folder to discard")

    def _forget(self, claim: ClaimView) -> None:
        requested = self._requested.get(claim.place, {})
        requested.pop(claim.uid, None)
        if not requested:
            self._requested.pop(claim.place, None)
        self._settled(claim.path)

    # -- volumes

    async def _reconcile_volume(self, place: Place) -> None:
        volume: VolumeView | None = self._volumes.items.get(place)
        if volume is None:
            self._settled(ResourcePath(kinds.PERSISTENT_VOLUME, place[1]))
            return
        if not self._is_synced:
            return
        if volume.deletes_folder or volume.keeps_folder:
            pause = await self._tried(volume, DELETE_FAILED, self._reclaim)
            if pause is not None:
                self._volume_queue.add_later(place, pause)

    async def _reclaim(self, volume: VolumeView) -> None:
        if volume.deletes_folder:
            await self._delete_folder(volume)
            await self._objects.delete(volume.path, uid=volume.uid)
        await self._lift_finalizer(volume)
        self._settled(volume.path)

    async def _delete_folder(self, volume: VolumeView) -> None:
        feed = self._clusters.followed.get(volume.cluster)
        by_hand = f"or remove {volume.folder} by hand, and then this volume's finalizer {FINALIZER_VOLUME}"
        if feed is None:
            raise Unserviceable(
                f"the folder is not deleted: SlurmCluster {volume.cluster} does not exist. Make it again, "
                f"{by_hand}"
            )
        try:
            async with self._deleting[volume.cluster].of(volume.namespace, volume.account):
                await feed.client.delete_volume(volume.handle)
        except NoSuchJob as error:
            raise Unserviceable(
                f"the folder is not deleted: the red-box of {volume.cluster} has no record of it that "
                f"resourced may delete. Give resourced the role volumes in red-box's mapping, {by_hand}"
            ) from error

    async def _lift_finalizer(self, volume: VolumeView) -> None:
        found = await self._objects.get(volume.path)
        if found is None or found["metadata"]["uid"] != volume.uid:
            return
        finalizers = found["metadata"].get("finalizers") or []
        if FINALIZER_VOLUME in finalizers:
            kept = [finalizer for finalizer in finalizers if finalizer != FINALIZER_VOLUME]
            version = found["metadata"]["resourceVersion"]
            await self._objects.set_finalizers(volume.path, kept, resource_version=version)

    # -- failures

    def _settled(self, path: ResourcePath) -> None:
        self._failures.pop(path, None)
        self._foreign_since.pop(path, None)
        self._events.forget(path)

    async def _tried(self, item: View, reason: str, step: Callable[[View], Awaitable[None]]) -> float | None:
        """Take one step; the pause before the next try, where it failed."""
        after: float | None = None
        try:
            await step(item)
        except Unserviceable as error:
            await self._events.report(item.path, item.uid, reason, str(error))
        except RedboxError as error:
            after = error.retry_after if isinstance(error, Refused) else None
            detail = error.problem.detail if isinstance(error, Refused) else str(error)
            takes_long = isinstance(error, Busy) and reason == DELETE_FAILED and not self._failures[item.path]
            if not takes_long:
                await self._events.report(item.path, item.uid, reason, detail)
        except (ApiError, TimeoutError) as error:
            log.warning("volume not reconciled", name=item.name, error=str(error))
        except Exception:  # one tenant's claim must not stop the service for all
            log.exception("volume", name=item.name)
        else:
            return None
        self._failures[item.path] += 1
        return max(after or 0.0, BACKOFF.pause_s(self._failures[item.path]))
