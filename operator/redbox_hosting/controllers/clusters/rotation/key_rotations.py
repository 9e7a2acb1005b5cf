"""The step that rotates a cluster's keys, when its administrator asks by an annotation on the Controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.clusters.rotation.key_readers import KeyReaders
from redbox_hosting.controllers.clusters.rotation.key_rotation import (
    AGAIN_S,
    WAITS,
    Rotation,
    RotationMove,
    asked_value,
    is_rotating,
    jwks_digest,
    next_move,
    without_former_jwt,
)
from redbox_hosting.controllers.clusters.secret_files import SecretFiles
from redbox_kube.controller.steps import StepFailed, StepOutcome, StepReport, StepState

ROTATED = "KeysRotated"


@dataclass
class KeyRotations:
    """Of all clusters; their Secrets have the progress."""

    secrets: SecretFiles
    readers: KeyReaders

    async def advance(self, world: ClusterWorld) -> StepOutcome:
        """One move at most."""
        controller, asked = world.controller, rotation_asked(world.controller)
        if controller.spec.external or controller.spec.slurm_key_ref:
            return _check_not_asked(controller, asked)
        rotated = controller.status.rotated_keys
        if rotated is not None and asked in {"", rotated}:
            return StepOutcome(fact=rotated)
        name = names.keys_name(controller.name)
        files = await self.secrets.find(controller.namespace, name) or {}
        rotation = Rotation.read(files)
        if not is_rotating(rotation, asked):
            return StepOutcome(fact=rotation.value)
        return await self._move(world, name, files)

    async def _move(self, world: ClusterWorld, name: str, files: Mapping[str, bytes]) -> StepOutcome:
        controller, asked, rotation = world.controller, rotation_asked(world.controller), Rotation.read(files)
        changed = without_former_jwt(files)
        if changed is not None and not await self.readers.slurmctld(world, jwks_digest(files)):
            await self.secrets.ensure(controller, name, lambda: changed, lambda found: found == files)
            return StepOutcome("tokens have the new key", WAITS[rotation.move], again_in_s=AGAIN_S)
        unread = await self.readers.unread(world, files)
        owns_jwt = controller.spec.jwt_key is None
        move = next_move(files, asked, unread, self.readers.context.clock(), owns_jwt=owns_jwt)
        if move.files is None:
            return StepOutcome(waits_for=move.waits_for, again_in_s=move.again_in_s)
        made = move.files
        await self.secrets.ensure(controller, name, lambda: made, lambda found: found == files)
        after = Rotation.read(made)
        if after.move is RotationMove.DONE:
            return StepOutcome(did="the keys were rotated", fact=after.value)
        return StepOutcome(f"Secret {name}: {after.move}", WAITS[after.move], again_in_s=AGAIN_S)


def rotated_keys(before: str | None, report: StepReport | None) -> str | None:
    """For the status: none while a rotation is on its way."""
    if report is None or report.state in {StepState.BLOCKED, StepState.FAILED}:
        return before
    return str(report.outcome.fact) if report.outcome.fact is not None else None


def rotation_asked(controller: SlurmController) -> str:
    """The annotation's value; empty without one."""
    annotations = controller.metadata.get("annotations") or {}
    return asked_value(str(annotations.get(names.ANNOTATION_ROTATE_KEYS, "")))


def _check_not_asked(controller: SlurmController, asked: str) -> StepOutcome:
    if asked and controller.spec.external:
        raise StepFailed(
            "the keys are not rotated: slurmctld runs elsewhere and has its own: rotate them there"
        )
    if asked and (given := controller.spec.slurm_key_ref):
        raise StepFailed(
            f"the keys are not rotated: by spec.slurmKeyRef each daemon knows one key alone, of Secret "
            f"{given.name}: stop the cluster to change it"
        )
    return StepOutcome()
