"""Which daemons of a cluster are seen to have read its keys: slurmctld, each slurmd, slurmdbd and login pods.

slurmctld's supervisor says what slurmctld has read, and the comment of a node what its slurmd has. slurmdbd
reads keys when it starts: its StatefulSet says with which. Login pods say nothing: they have read what the
kubelet has projected, which it does within a second of an annotation on the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from redbox_hosting.api import names
from redbox_hosting.controllers.cluster_pods import annotate, pods_of
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.clusters.reconfiguration import Reconfigurations
from redbox_hosting.controllers.clusters.rotation.key_rotation import Rotation, RotationMove, jwks_digest
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.rollouts import is_rolled_out
from redbox_hosting.slurm.answers import RestNode
from redbox_hosting.slurm.errors import SlurmUnknown
from redbox_kube.api.kinds import STATEFUL_SET
from redbox_kube.api.objects import Object, ResourcePath

COMMENT, DIGITS = "redbox-keys:", 16
"""As the pod writes it into its node's record."""
SILENT = frozenset({"DOWN", "FUTURE", "POWERED_DOWN", "POWERING_DOWN"})
"""No job is on such a node, and its slurmd reads the keys again before it can register."""
HAVE_KEYS = frozenset({"slurmctld", "slurmd", "login"})
"""Roles of pods into which the kubelet projects keys."""
PROJECTED_WITHIN = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class LoginPods:
    """Those that were there when all pods of a cluster had got the annotation."""

    digest: str
    names: tuple[str, ...]
    read_once: tuple[str, ...]


@dataclass
class KeyReaders:
    """Looked at only while keys are rotated."""

    context: HostingContext
    reconfigurations: Reconfigurations
    _projected: dict[str, LoginPods] = field(default_factory=dict)
    """By the Controller's uid."""

    async def unread(self, world: ClusterWorld, files: Mapping[str, bytes]) -> list[str]:
        """Those that are not seen to have read these keys, each with what is to be done."""
        digest = jwks_digest(files)
        login = await self._project(world, digest, Rotation.read(files))
        found = [*await self.slurmctld(world, digest), *await self._slurmdbd(world, digest), *login]
        if world.client is None or world.unread:
            return [*found, f"Slurm does not answer: {world.unread}"]
        return [*found, *nodes_without(digest, await world.client.nodes())]

    async def slurmctld(self, world: ClusterWorld, digest: str) -> list[str]:
        try:
            status = await self.reconfigurations.supervisor_status(world)
        except SlurmUnknown as error:
            return [str(error)]
        if not status.daemon.keys:
            return ["slurmctld does not report its keys: its image is older than the operator, replace it"]
        return [] if status.daemon.keys.get("slurm.jwks") == digest else ["slurmctld has not read them yet"]

    async def _slurmdbd(self, world: ClusterWorld, digest: str) -> list[str]:
        """Its Accounting replaces it when the keys have changed."""
        ref, namespace = world.controller.spec.accounting_ref, world.controller.namespace
        accounting = self.context.watches.accountings.get((namespace, ref.name)) if ref else None
        if accounting is None:
            return []
        if accounting.spec.external:
            return [f"the slurmdbd of Accounting {accounting.name} runs elsewhere: rotate its keys there"]
        name = names.accounting_name(accounting.name)
        found = await self.context.writer.objects.get(ResourcePath(STATEFUL_SET, name, namespace))
        has = found and (found["metadata"].get("annotations") or {}).get(names.ANNOTATION_KEYS)
        return [] if has == digest and is_rolled_out(found) else [f"{name} has not started with them yet"]

    async def _project(self, world: ClusterWorld, digest: str, rotation: Rotation) -> list[str]:
        """An annotation on all pods with keys makes the kubelet project them now; login pods that wait."""
        pods = self._projected.get(world.controller.uid)
        if pods is None or pods.digest != digest or pods.read_once:
            pods = self._projected[world.controller.uid] = await self._annotate(world, digest)
        if once := pods.read_once:
            return [f"the sackd of {name} reads keys at its start only: delete the pod" for name in once]
        is_over = rotation.since is None or self.context.clock() >= rotation.since + PROJECTED_WITHIN
        waits = rotation.move not in {RotationMove.DONE, RotationMove.SIGNED} and not is_over
        lines = [f"{name} reads them within {PROJECTED_WITHIN.seconds} s" for name in pods.names]
        return lines if waits else []

    async def _annotate(self, world: ClusterWorld, digest: str) -> LoginPods:
        """Once for each change of the keys: pods that are made later have the newest files."""
        login: list[str] = []
        once: list[str] = []
        writer = self.context.writer
        async for body in pods_of(writer.objects, world.controller, HAVE_KEYS):
            await annotate(writer, body, names.ANNOTATION_KEYS, digest)
            metadata = body["metadata"]
            if metadata["labels"][names.LABEL_ROLE] == "login":
                (once if reads_keys_once(body) else login).append(metadata["name"])
        return LoginPods(digest, tuple(login), tuple(once))


def reads_keys_once(login_pod: Object) -> bool:
    """Whether its sackd is not under the supervisor. Pure."""
    containers = (login_pod.get("spec") or {}).get("containers") or []
    return any("sackd" in " ".join(each.get("command") or []) for each in containers)


def nodes_without(digest: str, nodes: Iterable[RestNode]) -> list[str]:
    """Nodes whose slurmd is not seen to have these keys. Pure."""
    wanted, found = f"{COMMENT}{digest[:DIGITS]}", []
    for node in nodes:
        if node.state & SILENT or node.comment == wanted:
            continue
        if node.comment.startswith(COMMENT):
            found.append(f"node {node.name} has not read them yet")
        else:
            found.append(
                f"node {node.name} does not report its keys: its slurmd may know one key alone, or its image "
                "is older than the operator: replace its worker"
            )
    return found
