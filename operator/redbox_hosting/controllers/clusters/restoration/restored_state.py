"""Whether slurmctld may begin with the state of a backup.

A slurmctld ends the jobs that its state does not have: whatever ran before must be gone, or lost for good.
"""

from __future__ import annotations

from datetime import datetime

from redbox_hosting.api import names
from redbox_hosting.controllers.cluster_pods import pods_of
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.clusters.upgrades import slurmctld_set_of
from redbox_kube.api.objects import Object, ObjectClient
from redbox_kube.controller.steps import StepFailed

MOST_NAMED = 5


async def check_workers_of_before(objects: ObjectClient, world: ClusterWorld) -> None:
    """Raises StepFailed while slurmctld may not begin with its backup; without a backup, never."""
    if world.controller.spec.redbox.restore is None or slurmctld_set_of(world) is not None:
        return
    began = datetime.fromisoformat(world.controller.metadata["creationTimestamp"])
    workers = pods_of(objects, world.controller, {"slurmd"})
    before = [pod["metadata"]["name"] async for pod in workers if _created(pod) < began]
    if before:
        more = f" and {len(before) - MOST_NAMED} more" if len(before) > MOST_NAMED else ""
        raise StepFailed(
            f"the state is not restored while workers of before are there ({', '.join(before[:MOST_NAMED])}"
            f"{more}), whose jobs it would end: delete their NodeSets, and annotate workers that stay with "
            f"{names.ANNOTATION_FORCE_DELETE}"
        )


def _created(pod: Object) -> datetime:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
