"""Workers of another release of Slurm than slurmctld: older ones are replaced, newer ones not made. Pure."""

from __future__ import annotations

from dataclasses import replace

from redbox_hosting.api import names
from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.build.config.releases import UnknownRelease, release_of
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.controllers.workers.revisions import KEPT_FORMATS
from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_kube.controller.steps import StepFailed

NOT_KEPT = names.POD_FORMAT - KEPT_FORMATS
"""A format of pods that are replaced."""


def check_not_newer(node_set: NodeSet, cell: SlurmCell) -> None:
    """Raises StepFailed where the NodeSet's own image is newer than slurmctld, which would not answer it."""
    image = node_set.spec.slurmd.get("image")
    try:
        release = release_of(str(image)) if image else None
    except UnknownRelease:  # a user's own tag: its content is the user's care
        return
    if release is not None and release > cell.release and not cell.spec.external:
        raise StepFailed(
            f"UpgradeBlocked: slurmd of {release} in spec.slurmd.image is newer than slurmctld, which runs "
            f"{cell.release}: upgrade the Controller first"
        )


def of_the_release(view: WorkerView, node_set: NodeSet, cell: SlurmCell | None) -> WorkerView:
    """A worker of an older release counts as one of a former format, unless its NodeSet names its image."""
    if cell is None or cell.spec.external or node_set.spec.slurmd.get("image"):
        return view
    try:
        is_older = bool(view.image) and release_of(view.image) < cell.release
    except UnknownRelease:
        return view
    return replace(view, pod_format=NOT_KEPT) if is_older else view
