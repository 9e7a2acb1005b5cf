"""Objects of hosted Slurm for tests, with the least that each needs."""

from __future__ import annotations

from typing import Any

from redbox_hosting.api import names
from redbox_hosting.api.controller import ControllerSpec
from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.build.config.releases import SlurmRelease
from redbox_hosting.build.config.slurm_conf import ClusterInputs
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.controllers.workers.worker_views import WorkerView
from tests.hosting.nodeset.rows import NOW, pod

LIMITS = {"cpu": "4", "memory": "8Gi"}
NEW = "new"
"""The revision of a worker, unless it is said."""


def node_set(name: str = "w", **spec: Any) -> NodeSet:
    return NodeSet.model_validate(
        {
            "metadata": {"name": name, "uid": f"uid-of-{name}"},
            "spec": {"controllerRef": {"name": "slurm"}, "slurmd": {"resources": {"limits": LIMITS}}} | spec,
        }
    )


def controller_spec(**spec: Any) -> ControllerSpec:
    return ControllerSpec.model_validate(spec)


def inputs(
    spec: dict[str, Any] | None = None, release: SlurmRelease = SlurmRelease.R26_05, **more: Any
) -> ClusterInputs:
    given = {"node_sets": (node_set(),)} | more
    return ClusterInputs(
        name="slurm", namespace="hpc", spec=controller_spec(**(spec or {})), release=release, **given
    )


def cell(spec: dict[str, Any] | None = None, release: SlurmRelease = SlurmRelease.R26_05) -> SlurmCell:
    return SlurmCell(
        name="slurm",
        namespace="hpc",
        uid="uid-of-slurm",
        spec=controller_spec(**(spec or {})),
        image="registry.example.org/slurm:26.05",
        release=release,
    )


def worker(ordinal: int = 0, revision: str = NEW, **more: Any) -> WorkerView:
    made = pod(ordinal, **more)
    return WorkerView(
        pod=made,
        owner="uid-of-w",
        node_set="w",
        version="1",
        machine_name="k1",
        revision=revision,
        pod_format=names.POD_FORMAT,
        condemned_at=None,
        ready_since=NOW - 100 if made.is_ready else None,
        condition=None,
        problem="",
        restarts=0,
    )
