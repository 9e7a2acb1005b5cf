"""The step that rotates a cluster's keys, when its administrator asks by an annotation on the Controller."""

from __future__ import annotations

from dataclasses import dataclass

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.clusters.rotation.key_readers import KeyReaders
from redbox_hosting.controllers.clusters.rotation.key_rotation import (
    WAITS,
    Rotation,
    RotationMove,
    asked_value,
    is_rotating,
    next_move,
)
from redbox_hosting.controllers.clusters.secret_files import SecretFiles
from redbox_kube.controller.steps import StepFailed, StepOutcome

ROTATED = "KeysRotated"
AGAIN_S = 2.0


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
        name = names.keys_name(controller.name)
        files = await self.secrets.find(controller.namespace, name) or {}
        if not is_rotating(Rotation.read(files), asked):
            return StepOutcome()
        unread = await self.readers.unread(world, files)
        owns_jwt = controller.spec.jwt_key is None
        move = next_move(files, asked, unread, self.readers.context.clock(), owns_jwt=owns_jwt)
        if move.files is None:
            return StepOutcome(waits_for=move.waits_for, again_in_s=AGAIN_S)
        made = move.files
        await self.secrets.ensure(controller, name, lambda: made, lambda found: found == files)
        after = Rotation.read(made)
        if after.move is RotationMove.DONE:
            return StepOutcome(did="the keys were rotated")
        return StepOutcome(f"Secret {name}: {after.move}", WAITS[after.move], again_in_s=AGAIN_S)


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
