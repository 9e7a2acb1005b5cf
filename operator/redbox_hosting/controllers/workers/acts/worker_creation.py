"""The creation of workers: claims, then the pod. It never needs Slurm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from redbox_hosting.api import names
from redbox_hosting.api.controller import ControllerSpec
from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.build.pods.parts import Manifest, SlurmCell
from redbox_hosting.build.pods.worker import (
    WorkerPlan,
    claim_name,
    grace_seconds,
    time_limit_seconds,
    worker_pod,
)
from redbox_hosting.controllers.workers.acts.for_each import Answers, for_each
from redbox_hosting.controllers.workers.worker_views import created_as
from redbox_kube.api.kinds import PERSISTENT_VOLUME_CLAIM, POD
from redbox_kube.api.objects import ResourcePath
from redbox_kube.controller.steps import StepFailed
from redbox_kube.status.status_writer import StatusWriter
from redbox_shared.hosted_settings.lines import read_options

FIRST_BATCH = 1
"""Of pods that are created at once; each batch that succeeds doubles the next one."""


class NameTaken(StepFailed):
    """A pod of this name is there, and belongs to somebody else."""


@dataclass(frozen=True)
class WorkerCreation:
    """Creates by name: a pod that is there already is no error if it is the NodeSet's."""

    writer: StatusWriter

    async def create_all(
        self, cell: SlurmCell, plans: Sequence[WorkerPlan], check: Callable[[], None]
    ) -> Answers[WorkerPlan, bool]:
        """In batches that double, so that what fails for all fails once. A name that is taken stops none."""

        async def create(plan: WorkerPlan) -> bool:
            check()
            return await self.create(cell, plan)

        answers = Answers[WorkerPlan, bool]()
        first, size = 0, FIRST_BATCH
        while first < len(plans):
            batch = await for_each(plans[first : first + size], create)
            answers.done += batch.done
            answers.failed += batch.failed
            if any(not isinstance(error, NameTaken) for _, error in batch.failed):
                break
            first, size = first + size, size * 2
        return answers

    async def create(self, cell: SlurmCell, plan: WorkerPlan) -> bool:
        """Whether it was created; raises StepFailed if the name is taken."""
        for template in plan.node_set.spec.volume_claim_templates:
            await self._create_claim(template, plan)
        where = ResourcePath(POD, namespace=cell.namespace)
        created = await self.writer.objects.create(where, manifest_of(cell, plan))
        if created is not None:
            self.writer.count(POD.name, "create")
            return True
        await self._check_owner(ResourcePath(POD, plan.name, cell.namespace), plan)
        return False

    async def _check_owner(self, where: ResourcePath, plan: WorkerPlan) -> None:
        node_set = plan.node_set
        found = await self.writer.objects.get(where)
        owners = (found or {}).get("metadata", {}).get("ownerReferences") or []
        if found is None:
            raise StepFailed(f"the pod {where.name} could not be created, and is created again")
        if all(owner.get("uid") != node_set.uid for owner in owners):
            cure = "select other Kubernetes nodes" if plan.machine else "give the NodeSet another name"
            taken = f"the pod {where.name} exists and does not belong to NodeSet {node_set.name}"
            raise NameTaken(f"{taken}: delete it, or {cure}")

    async def _create_claim(self, template: Manifest, plan: WorkerPlan) -> None:
        """Kept when the worker goes, unless the NodeSet says otherwise."""
        node_set = plan.node_set
        own = {names.LABEL_NODE_SET: node_set.name, **plan.numbered}
        given = template["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": PERSISTENT_VOLUME_CLAIM.name,
            "metadata": {
                "name": claim_name(template, plan),
                "namespace": node_set.namespace,
                "labels": {**given.get("labels", {}), **own},
                "annotations": given.get("annotations", {}),
            },
            "spec": template["spec"],
        }
        where = ResourcePath(PERSISTENT_VOLUME_CLAIM, namespace=node_set.namespace)
        if await self.writer.objects.create(where, body) is not None:
            self.writer.count(PERSISTENT_VOLUME_CLAIM.name, "create")


def manifest_of(cell: SlurmCell, plan: WorkerPlan) -> Manifest:
    """The pod, with the record of what others must not change."""
    manifest = worker_pod(cell, plan)
    annotations = {
        **manifest["metadata"].get("annotations", {}),
        names.ANNOTATION_CREATED_AS: created_as(manifest),
    }
    labels = dict(manifest["metadata"]["labels"])
    if not plan.node_set.spec.workload_disruption_protection:
        del labels[names.LABEL_PROTECTED]
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations, "labels": labels}}


def grace_of(controller: ControllerSpec, node_set: NodeSet) -> int:
    """By the longest limit of the partitions that have its nodes; one without a limit is without an end."""
    limits = list(_limits(controller, node_set))
    longest = None if not limits or None in limits else max(limit for limit in limits if limit is not None)
    return grace_seconds(longest, node_set.spec.redbox.drain_timeout)


def _limits(controller: ControllerSpec, node_set: NodeSet) -> Iterable[int | None]:
    for partition in controller.redbox.partitions:
        if not partition.node_sets or node_set.name in partition.node_sets:
            yield time_limit_seconds(partition.max_time) if partition.max_time else None
    own = node_set.spec.partition
    if own and own.enabled:
        options, _ = read_options(own.config or "", node_set.name)
        yield _limit(dict(options).get("MaxTime"))
    if "partitionname" in (controller.extra_conf or "").lower():
        yield None


def _limit(given: str | None) -> int | None:
    try:
        return time_limit_seconds(given.strip('"')) if given else None
    except ValueError:
        return None
