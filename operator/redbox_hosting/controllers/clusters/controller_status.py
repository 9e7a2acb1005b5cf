"""The status of a Controller: what slurmctld was seen to run, and what it waits for. Pure."""

from __future__ import annotations

from redbox_hosting.api.status import ControllerStatus
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.clusters.rotation.key_rotations import ROTATED, rotated_keys
from redbox_hosting.controllers.clusters.trials import trial_condition
from redbox_hosting.controllers.clusters.upgrades import BLOCKED, running_image
from redbox_hosting.controllers.clusters.users.user_conditions import user_conditions
from redbox_hosting.controllers.clusters.users.user_steps import HOMES
from redbox_hosting.controllers.verdict import verdict
from redbox_kube.controller.status_reporter import StatusVerdict
from redbox_kube.controller.steps import Reports, StepState
from redbox_kube.status.conditions import NewCondition


def status_of(world: ClusterWorld, reports: Reports) -> StatusVerdict:
    """Ready: slurmctld was seen to run the configuration that the spec asks for."""
    # A cluster whose keys are being rotated serves its users, and so does one that makes a new home.
    own = {
        name: report
        for name, report in reports.items()
        if name != ROTATED and not (name == HOMES and report.state is StepState.WAITING)
    }
    conditions = verdict(own, "slurmctld runs the wanted configuration")
    before = world.controller.status
    messages = (report.message for report in reports.values())
    blocked = next((message for message in messages if message.startswith(BLOCKED)), "")
    conditions.append(
        NewCondition("UpgradeBlocked", "Waiting" if blocked else "NotBlocked", blocked, holds=bool(blocked))
    )
    return (
        ControllerStatus(
            version=world.release or before.version,
            config_hash=world.running or before.config_hash,
            nodes=world.nodes if world.nodes is not None else before.nodes,
            image=running_image(world),
            rotated_keys=rotated_keys(before.rotated_keys, reports.get(ROTATED)),
            oldest_slurmd=world.oldest_slurmd,
        ),
        [*conditions, *trial_condition(world), *user_conditions(world)],
    )
