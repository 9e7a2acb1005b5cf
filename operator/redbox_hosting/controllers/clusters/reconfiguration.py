"""A new configuration on its way into slurmctld: projected, read by a reconfigure, and read back.

The kubelet projects it within a second of an annotation on the pod, and within a minute without; where it
sees the annotation before the ConfigMap, the files are those of before, and it is asked again. slurmctld
reads what is there: so it is asked only once the supervisor in its pod has the new files. A request without
an answer is repeated with a pause, since each one starts a second slurmctld. After a refused one slurmctld
runs on, but hands the refused files to workers that start: it is asked once more with those of before.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from redbox_hosting.api import names
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.clusters.configuration import WantedConfiguration, running_digest
from redbox_hosting.controllers.clusters.control_connections import ControlConnections, host_of
from redbox_hosting.controllers.clusters.slurmctld_pod import (
    CONTAINER,
    address_of,
    config_hash_of,
    end_of_slurmctld,
    words_in,
)
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_hosting.slurm.errors import NotServed, SlurmRefusal, SlurmUnknown, TokenRefused
from redbox_hosting.slurm.supervisor import SupervisorStatus, read_status
from redbox_kube.api.informer import Place
from redbox_kube.api.kinds import CONFIG_MAP, POD
from redbox_kube.api.objects import ApiError, Object, ResourcePath
from redbox_kube.api.pod_logs import log_tail
from redbox_kube.controller.steps import StepFailed, StepOutcome

AGAIN_S = 1.0
LOG_LINES = 50
REPEATED_AFTER = timedelta(seconds=15)
PROJECTED_WITHIN = timedelta(seconds=5)
ReadStatus = Callable[[str, ssl.SSLContext | None, str], Awaitable[SupervisorStatus]]


@dataclass
class Reconfigurations:
    """Of all clusters; which one was asked for last is all that is kept."""

    context: HostingContext
    connections: ControlConnections
    read_status: ReadStatus = read_status
    _asked: dict[Place, tuple[str, datetime]] = field(default_factory=dict)
    _late: dict[Place, datetime] = field(default_factory=dict)
    """Since when the kubelet is known to have projected files of before, or was asked again."""

    def forget(self, place: Place) -> None:
        self._asked.pop(place, None)
        self._late.pop(place, None)

    async def project(self, pod: Object, digest: str) -> None:
        """Make the kubelet project this configuration, the one before after a refusal included.

        A slurmctld that could not start with another one would be started again only after the kubelet's
        growing pauses: its pod is replaced.
        """
        had, metadata = config_hash_of(pod), pod["metadata"]
        if had == digest:
            return
        if had and end_of_slurmctld(pod):
            where = ResourcePath(POD, metadata["name"], metadata["namespace"])
            await self.context.writer.delete(where, metadata["uid"])
            return
        await self._annotate(pod, names.ANNOTATION_CONFIG_HASH, digest)

    async def _annotate(self, pod: Object, annotation: str, value: str | None) -> None:
        """None removes it."""
        where = ResourcePath(POD, pod["metadata"]["name"], pod["metadata"]["namespace"])
        body = {"metadata": {"annotations": {annotation: value}}}
        if await self.context.writer.objects.merge(where, body) is None:
            raise StepFailed(f"the pod {where.name} is gone")
        self.context.writer.count(POD.name, "patch")

    @staticmethod
    def has_to_reread(world: ClusterWorld) -> bool:
        """Whether the last reconfigure was refused."""
        annotations = world.pod["metadata"].get("annotations") if world.pod else None
        return names.ANNOTATION_REREAD in (annotations or {})

    async def apply(
        self, world: ClusterWorld, client: SlurmrestdClient, mounted: WantedConfiguration
    ) -> StepOutcome:
        """For a slurmctld that runs another configuration than the mounted one, or has to reread that."""
        place, now = world.controller.place, self.context.clock()
        if late := await self._not_projected(world, mounted):
            since = self._late.setdefault(place, now)
            if world.pod and now - since >= PROJECTED_WITHIN:
                self._late[place] = now
                await self._annotate(world.pod, names.ANNOTATION_PROJECT_AGAIN, now.isoformat())
            waits = f"the kubelet to project {late} into slurmctld's pod"
            return StepOutcome(waits_for=waits, again_in_s=AGAIN_S)
        self._late.pop(place, None)
        asked, since = self._asked.get(place, ("", now))
        if asked != mounted.digest or now - since >= REPEATED_AFTER:
            self._asked[place] = mounted.digest, now
            try:
                await client.reconfigure()
            except SlurmUnknown as error:
                return StepOutcome(waits_for=f"an answer to the reconfigure: {error}", again_in_s=AGAIN_S)
            except (TokenRefused, NotServed):
                raise
            except SlurmRefusal as error:
                # Only if the old one is seen to run on: else the outcome is unknown.
                if not world.running or running_digest(await client.licenses()) != world.running:
                    raise
                words = await self._words(world) or str(error)
                if world.pod:
                    await self._annotate(world.pod, names.ANNOTATION_REREAD, mounted.digest)
                await self.refuse(world, mounted.digest, words)
                raise StepFailed(f"Slurm refused the configuration: {words}") from error
            if world.pod and self.has_to_reread(world):
                await self._annotate(world.pod, names.ANNOTATION_REREAD, None)
        return StepOutcome(waits_for="slurmctld to run the new configuration", again_in_s=AGAIN_S)

    async def _not_projected(self, world: ClusterWorld, mounted: WantedConfiguration) -> str:
        """A file that the pod does not have yet; none where the supervisor cannot tell."""
        try:
            found = (await self.supervisor_status(world)).files
        except SlurmUnknown:
            return ""
        late = (name for name, text in sorted(mounted.files.items()) if found.get(name) != _sha256(text))
        return next(late, "") if found else ""

    async def supervisor_status(self, world: ClusterWorld) -> SupervisorStatus:
        """Of slurmctld's pod. Raises SlurmUnknown."""
        address = address_of(world.pod) if world.pod else ""
        tls = self.connections.tls_of(world.controller.place)
        if not address or tls is None:
            raise SlurmUnknown("slurmctld's pod has no address yet")
        owner = names.controller_name(world.controller.name)
        endpoint = f"https://{host_of(address)}:{names.PORT_SUPERVISOR}"
        return await self.read_status(endpoint, tls, f"{owner}.{world.controller.namespace}.svc")

    async def _words(self, world: ClusterWorld) -> str:
        """Slurm's own, from its log: slurmrestd only says that it failed. Empty if the log cannot be read."""
        pod, namespace = names.controller_host(world.controller.name), world.controller.namespace
        try:
            log = await log_tail(self.context.writer.objects, namespace, pod, CONTAINER, lines=LOG_LINES)
        except ApiError:
            return ""
        return words_in(log)

    async def refuse(self, world: ClusterWorld, digest: str, words: str) -> None:
        """What ran before is mounted again, if its files are still there."""
        if world.before == digest or world.files_of(world.before) is None:
            return
        controller = world.controller
        record = ResourcePath(CONFIG_MAP, names.config_name(controller.name, digest), controller.namespace)
        annotations = {names.ANNOTATION_REFUSED: words}
        await self.context.writer.objects.merge(record, {"metadata": {"annotations": annotations}})
        self.context.writer.count(CONFIG_MAP.name, "patch")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
