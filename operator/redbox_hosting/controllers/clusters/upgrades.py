"""The order of an upgrade of Slurm: slurmdbd, slurmctld, slurmrestd, slurmd, by the releases that really run.

A daemon may be older than those that it reports to, and never newer. slurmdbd takes the Controller's image at
once, slurmctld once slurmdbd runs, and the others follow the image that slurmctld was seen to run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.build.config.releases import SlurmRelease, release_of
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.rollouts import is_rolled_out
from redbox_hosting.slurm.answers import RestNode
from redbox_kube.api.kinds import STATEFUL_SET
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.controller.steps import StepFailed

BLOCKED = "slurmctld waits"
RELEASE = re.compile(r"[0-9]{2}\.[0-9]{2}")


@dataclass(frozen=True, slots=True)
class SlurmctldStep:
    """What slurmctld is to run now, and why that is not what the spec asks for."""

    cell: SlurmCell
    why_blocked: str = ""


@dataclass
class SlurmUpgrades:
    """Of all clusters."""

    context: HostingContext

    async def step_of(self, world: ClusterWorld) -> SlurmctldStep:
        """Raises StepFailed before an older release reads the state of a newer one."""
        cell, image = world.built, image_in(slurmctld_set_of(world), "slurmctld")
        if world.controller.spec.external:
            return SlurmctldStep(cell)
        check_not_older("Slurm", world.controller.status.version or "", cell.release)
        if not image or release_of(image) >= cell.release:
            return SlurmctldStep(cell)
        why = await self._why_slurmdbd_blocks(world.controller, cell.release)
        return SlurmctldStep(with_image(cell, image) if why else cell, why)

    async def _why_slurmdbd_blocks(self, controller: SlurmController, release: SlurmRelease) -> str:
        ref = controller.spec.accounting_ref
        accounting = self.context.watches.accountings.get((controller.namespace, ref.name)) if ref else None
        if accounting is None or accounting.spec.external:  # nobody can say what runs there
            return ""
        where = ResourcePath(STATEFUL_SET, names.accounting_name(accounting.name), controller.namespace)
        found = await self.context.writer.objects.get(where)
        image = image_in(found, "slurmdbd")
        if image and release_of(image) >= release and is_rolled_out(found):
            return ""
        cure = "wait for it"
        if accounting.spec.slurmdbd.get("image"):
            cure = f"set spec.slurmdbd.image of Accounting {accounting.name} to one of {release}"
        return f"{BLOCKED} for {where.name}, whose slurmdbd does not run {release} yet: {cure}"


def with_image(cell: SlurmCell, image: str) -> SlurmCell:
    """With this one for slurmctld too, whatever its container asks for."""
    spec = cell.spec.model_copy(update={"slurmctld": {**cell.spec.slurmctld, "image": image}})
    return replace(cell, spec=spec, image=image, release=release_of(image))


def check_not_older(what: str, version: str, release: SlurmRelease) -> None:
    """Raises StepFailed before a release reads what a newer one, `version`, has written."""
    if version[: len(release)] > release:
        raise StepFailed(
            f"{what} {version} cannot go back to {release}, which cannot read its state: set an image of "
            f"{version[: len(release)]} or newer"
        )


def slurmctld_set_of(world: ClusterWorld) -> Object | None:
    return world.daemons.get(names.controller_name(world.controller.name))


def image_in(body: Object | None, container: str) -> str:
    """Of this container of a StatefulSet; empty if there is none."""
    containers = (
        (((body or {}).get("spec") or {}).get("template") or {}).get("spec", {}).get("containers", [])
    )
    return next((str(each.get("image") or "") for each in containers if each["name"] == container), "")


def running_image(world: ClusterWorld) -> str | None:
    """That slurmctld was last seen to run; where it runs elsewhere, slurmrestd."""
    controller, daemon = world.controller, "slurmctld"
    found = slurmctld_set_of(world)
    if controller.spec.external:
        found, daemon = world.daemons.get(names.control_name(controller.name)), "slurmrestd"
    return image_in(found, daemon) if is_rolled_out(found) else controller.status.image


def oldest_slurmd(nodes: Iterable[RestNode]) -> str | None:
    """The release; None without a node that runs."""
    found = (RELEASE.match(node.version) for node in nodes if not node.state & {"FUTURE", "POWERED_DOWN"})
    return min((match[0] for match in found if match), default=None)


def configured_release(cell: SlurmCell, *others: str | None) -> SlurmRelease:
    """Of the keys in slurm.conf: the oldest one, which would die of the keys of a newer one."""
    return min([cell.release, *(SlurmRelease(each) for each in others if each in list(SlurmRelease))])
