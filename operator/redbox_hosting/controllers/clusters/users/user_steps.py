"""The steps of a cluster's users: the ConfigMap that pods mount, and a Job that makes new homes.

No pod is replaced for a change: an annotation on each pod makes the kubelet project the new files now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from redbox_hosting.api import names
from redbox_hosting.build.pods.homes import ROLE, homes_job
from redbox_hosting.build.users.unix_lines import UnixAccounts
from redbox_hosting.controllers.cluster_pods import annotate, pods_of
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.unstarted_pods import why_not_started
from redbox_kube.api.kinds import CONFIG_MAP, JOB
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.controller.owned import DesiredObject, OwnedObjects, revision
from redbox_kube.controller.steps import ReconcileStep, StepFailed, StepOutcome

USERS, HOMES = "Users", "Homes"
HAVE_USERS = frozenset({"slurmctld", "slurmd", "slurmdbd", "login"})
"""Roles of pods that mount the users."""
AGAIN_AFTER = timedelta(minutes=1)
"""A Job that failed is made again."""


@dataclass
class UserSteps:
    """Of the controller of Controllers."""

    context: HostingContext
    owned: OwnedObjects
    _projected: dict[str, str] = field(default_factory=dict)
    """By the Controller's uid: the digest that its pods have been annotated with."""

    def steps(self) -> list[ReconcileStep[ClusterWorld]]:
        return [
            ReconcileStep(USERS, self._apply_users, needs=("Authority",)),
            ReconcileStep(HOMES, self._make_homes, needs=("Authority", "Image")),
        ]

    async def _apply_users(self, world: ClusterWorld) -> StepOutcome:
        controller, users = world.controller, world.users.read
        if world.users.why_unread:
            raise StepFailed(world.users.why_unread)
        if users is None:
            return StepOutcome(did=await self.owned.apply(controller, [], part="users"))
        about = {
            "labels": {names.LABEL_CLUSTER: controller.name},
            "annotations": {names.ANNOTATION_USERS: users.digest},
        }
        wanted = DesiredObject(
            CONFIG_MAP, names.users_name(controller.name), {"metadata": about, "data": users.files}
        )
        did = await self.owned.apply(controller, [wanted], part="users")
        if is_mounted(world, users):
            await self._project(world, users.digest)
        return StepOutcome(did=did)

    async def _project(self, world: ClusterWorld, digest: str) -> None:
        """Pods that are made later have the newest files."""
        if self._projected.get(world.controller.uid) == digest:
            return
        writer = self.context.writer
        async for pod in pods_of(writer.objects, world.controller, HAVE_USERS):
            await annotate(writer, pod, names.ANNOTATION_USERS, digest)
        self._projected[world.controller.uid] = digest

    async def _make_homes(self, world: ClusterWorld) -> StepOutcome:
        """The Job that has ended stays: it tells that these homes are made."""
        homes, users = world.controller.spec.redbox.homes, world.users.read
        wanted = ""
        if homes is not None and users is not None and any(user.home_folder for user in users.users):
            wanted = names.homes_name(
                world.controller.name, revision({"users": users.digest, "claim": homes.claim_name})
            )
        if wanted or not world.users.why_unread:
            for name, job in world.users.jobs.items():
                if name != wanted:
                    await self._delete(world, job)
        if users is None or not wanted:
            return StepOutcome()
        if not is_mounted(world, users):
            return StepOutcome(waits_for="the ConfigMap of the users")
        if (existing := world.users.jobs.get(wanted)) is None:
            made = DesiredObject(JOB, wanted, homes_job(world.built, wanted, users.digest))
            await self.owned.create(world.controller, made)
            return StepOutcome(did=f"Job {wanted} created", waits_for=f"the Job {wanted}")
        return await self._progress(world, existing)

    async def _progress(self, world: ClusterWorld, job: Object) -> StepOutcome:
        name = job["metadata"]["name"]
        if ended_at(job, "Complete") is not None:
            return StepOutcome()
        if (failed := ended_at(job, "Failed")) is not None:
            if self.context.clock() - failed >= AGAIN_AFTER:
                await self._delete(world, job)
            raise StepFailed(f"the Job {name} failed, and is made again: {words_of(world, job)}")
        unstarted = (why_not_started(pod, ROLE) for pod in pods_of_job(world, job))
        why = world.users.why_no_claim or next(filter(None, unstarted), "")
        return StepOutcome(waits_for=f"the Job {name}{f' ({why})' if why else ''}")

    async def _delete(self, world: ClusterWorld, job: Object) -> None:
        """With its pods, which a Job would leave otherwise."""
        if "deletionTimestamp" not in job["metadata"]:
            where = ResourcePath(JOB, job["metadata"]["name"], world.controller.namespace)
            await self.context.writer.delete(where, job["metadata"]["uid"], propagationPolicy="Background")


def is_mounted(world: ClusterWorld, users: UnixAccounts) -> bool:
    """Whether the ConfigMap that pods mount has these."""
    found = world.configs.get(names.users_name(world.controller.name)) or {"metadata": {}}
    return (found["metadata"].get("annotations") or {}).get(names.ANNOTATION_USERS) == users.digest


def pods_of_job(world: ClusterWorld, job: Object) -> list[Object]:
    """Oldest first."""
    uid = job["metadata"]["uid"]
    found = [
        pod
        for pod in world.users.pods
        if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences") or ())
    ]
    return sorted(found, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))


def words_of(world: ClusterWorld, job: Object) -> str:
    """The last ones of a pod of this Job."""
    for pod in reversed(pods_of_job(world, job)):
        for status in (pod.get("status") or {}).get("containerStatuses") or []:
            if message := ((status.get("state") or {}).get("terminated") or {}).get("message"):
                return str(message).strip()
    return "its pod said nothing"


def ended_at(job: Object, condition: str) -> datetime | None:
    """When this condition became true."""
    for each in (job.get("status") or {}).get("conditions") or []:
        if each["type"] == condition and each["status"] == "True":
            return datetime.fromisoformat(each["lastTransitionTime"])
    return None
