"""Creates, replaces and deletes the companion of an attempt until it has left its final message.

The request to red-box is stored in an immutable ConfigMap of the companion's name before the pod is created.
An object of that name whose ownerReference is ours, but whose uid or digest was never recorded, was created
before a crash, or forged: it is deleted and created again. An object of another owner is not touched: the
name is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus

import structlog

from redbox_api.models import Dependency
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_kube.api import kinds
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.status.problems import StatusProblem
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.constants import PodRole, pod_name
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_status import CompanionStatus
from redbox_operator.companion_pods.admission_errors import problem_of_refusal
from redbox_operator.companion_pods.builder import (
    CompanionProgram,
    companion_pod,
    config_map,
    needs_helper,
    needs_submitter,
    reaches,
    request_digest,
)
from redbox_operator.companion_pods.plan import (
    MAX_REPLACED,
    CompanionPod,
    Step,
    companion_of,
    plan_for,
    plan_for_auxiliary,
    replaced,
)
from redbox_shared.pod_contract import CA_FILE, REQUEST_FILE

log = structlog.get_logger(__name__)
AFTER_DELETE_S = 5.0
LEFT_OVER_S = 0.5
STUCK_S = 120.0
"""After the end of its grace period a pod has been deleted by force several times."""


@dataclass(frozen=True, slots=True)
class CompanionState:
    """The companion after a step: its record for the status, its pod, and a problem if there is one."""

    recorded: CompanionStatus | None
    pod: CompanionPod | None
    problem: StatusProblem | None = None
    requeue_after_s: float | None = None
    refused: bool = False  # by Kubernetes: retried with growing pauses, for an hour
    waits: bool = False  # for an object that no watch shows: the same, without an end
    is_first: bool = False  # of its attempt: the job cannot have been submitted before


@dataclass(frozen=True, slots=True)
class CompanionTarget:
    """The companion of one attempt of a SlurmJob, on one cluster."""

    job: SlurmJob
    cluster: SlurmCluster
    attempt: int
    dependencies: Sequence[Dependency] = ()
    job_has_ended: bool = False

    @property
    def name(self) -> str:
        return pod_name(self.job.name, self.attempt)

    def where(self, kind: Kind, role: PodRole = PodRole.JOB) -> ResourcePath:
        return ResourcePath(kind, pod_name(self.job.name, self.attempt, role), self.job.namespace)


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """The stored request of an attempt. `is_new`: no pod can have been created from it before."""

    digest: str
    is_new: bool


class CompanionLifecycle:
    """Takes the next step for a companion, at the API server."""

    def __init__(
        self, writer: StatusWriter, program: CompanionProgram, on_created: Callable[[CompanionPod], None]
    ) -> None:
        """`on_created` is called with each pod that was created or found at the API server."""
        self._objects = writer.objects
        self._writer = writer
        self._program = program
        self._on_created = on_created

    async def reconcile(
        self,
        target: CompanionTarget,
        recorded: CompanionStatus | None,
        pod: CompanionPod | None,
        now: datetime,
        role: PodRole = PodRole.JOB,
    ) -> CompanionState:
        """One step towards the final message of the companion, or of a pod beside it that existed before."""
        inputs = recorded, pod, target.job.uid, reaches(target.cluster), now
        if role is PodRole.JOB:
            plan = plan_for(*inputs, job_has_ended=target.job_has_ended)
        else:
            plan = plan_for_auxiliary(*inputs)
        name = pod_name(target.job.name, target.attempt, role)
        match plan.step:
            case Step.MAKE if role is PodRole.JOB:
                return await self._create(target, recorded, now)
            case Step.MAKE:
                assert recorded is not None  # noqa: S101 (the companion was created with it)
                return await self._replace_auxiliary(target, role, recorded, now)
            case Step.DELETE | Step.FORCE:
                assert pod is not None  # noqa: S101 (no such plan without one)
                await self._delete(target, pod, forced=plan.step is Step.FORCE)
                problem = _stays(pod.name) if _is_stuck(pod, now) else None
                return CompanionState(recorded, pod, problem, plan.requeue_after_s or AFTER_DELETE_S)
            case Step.RECORD_FINAL_MESSAGE:
                assert recorded is not None  # noqa: S101 (its uid was compared)
                return CompanionState(recorded.model_copy(update={"done": True}), pod)
            case Step.FOREIGN:
                return await self._name_conflict(target, recorded, role)
            case Step.GIVEN_UP | Step.KEEP:
                problem = _keeps_failing(name) if plan.step is Step.GIVEN_UP else None
                return CompanionState(recorded, pod, problem, plan.requeue_after_s)

    async def dismiss(
        self, target: CompanionTarget, recorded: CompanionStatus, pods: Sequence[CompanionPod]
    ) -> CompanionStatus:
        """Delete the pods of an attempt that is never submitted; no other follows."""
        for pod in pods:
            if pod.dead_at is None and not pod.ended:
                await self._delete(target, pod, forced=False)
        return recorded.model_copy(update={"done": True})

    async def _create(
        self, target: CompanionTarget, recorded: CompanionStatus | None, now: datetime
    ) -> CompanionState:
        try:
            if missing := await self._script_missing(target):
                return CompanionState(recorded, None, missing, waits=True)
            request = await self._store_request(target, recorded)
            if request is None:
                return CompanionState(recorded, None, _name_taken("ConfigMap", target.name), refused=True)
            made = await self._create_pod(target, PodRole.JOB)
        except ApiRefused as refusal:
            return self._refused(refusal, recorded)
        if made is None:
            return await self._name_conflict(target, recorded, PodRole.JOB)
        pod = companion_of(made)
        await self._create_auxiliaries(target)
        count, at = replaced(recorded, now.replace(microsecond=0))
        names = {"name": pod.name, "uid": pod.uid, "attempt": target.attempt, "request": request.digest}
        companion = CompanionStatus(**names, replaced=count, replaced_at=at)
        return CompanionState(companion, pod, is_first=request.is_new)

    async def _script_missing(self, target: CompanionTarget) -> StatusProblem | None:
        """A pod whose volume is missing reports no reason: so it is not created before the script exists."""
        if target.job.spec.batch_from is None:
            return None
        source = target.job.spec.batch_from.config_map_key_ref
        existing = await self._objects.get(ResourcePath(kinds.CONFIG_MAP, source.name, target.job.namespace))
        if existing and source.key in {**(existing.get("data") or {}), **(existing.get("binaryData") or {})}:
            return None
        place = f"key {source.key} in ConfigMap {source.name}" if existing else f"ConfigMap {source.name}"
        message = f"there is no {place}, which batchFrom names. Create it; the job then continues"
        return StatusProblem("ScriptMissing", message)

    async def _store_request(
        self, target: CompanionTarget, recorded: CompanionStatus | None
    ) -> StoredRequest | None:
        """Store the request before any pod can submit it; None where the name is taken.

        Where only the CA beside it has changed, the stored request is kept.
        """
        body = config_map(target.job, target.cluster, target.attempt, target.dependencies)
        for again in (False, True):
            digest = request_digest(body)
            if await self._objects.create(
                ResourcePath(kinds.CONFIG_MAP, namespace=target.job.namespace), body
            ):
                self._writer.count("ConfigMap", "create")
                return StoredRequest(digest, is_new=recorded is None and not again)
            existing = await self._objects.get(target.where(kinds.CONFIG_MAP))
            if existing is None:
                continue
            found = request_digest(existing) if "request.json" in existing.get("data", {}) else None
            ours = _is_owned_by(existing, target.job.uid)
            expected = {digest, recorded.request if recorded else None}
            if found and ours and existing.get("immutable") and found in expected:
                if existing["data"].get(CA_FILE) == body["data"][CA_FILE]:
                    return StoredRequest(found, is_new=False)
                body["data"][REQUEST_FILE] = existing["data"][REQUEST_FILE]
            elif not ours and not _is_left_over(existing, target.job):
                return None
            await self._objects.delete(target.where(kinds.CONFIG_MAP), uid=existing["metadata"]["uid"])
        return None

    async def _create_pod(self, target: CompanionTarget, role: PodRole) -> Object | None:
        # A helper with ports waits until the job is at red-box, which may have forgotten an ended one.
        serves_ports = role is not PodRole.HELPER or not target.job_has_ended
        body = companion_pod(
            target.job, target.cluster, target.attempt, self._program, role, serves_ports=serves_ports
        )
        made = await self._objects.create(ResourcePath(kinds.POD, namespace=target.job.namespace), body)
        if made is not None:
            self._writer.count("Pod", "create")
            self._on_created(companion_of(made))
            log.info("companion created", slurmjob=target.job.ref.full_name, pod=body["metadata"]["name"])
        return made

    async def _create_auxiliaries(self, target: CompanionTarget) -> None:
        """With Virtual delivery: the pods beside the companion; a refused one is made later."""
        needed = {
            PodRole.SUBMIT: needs_submitter(target.job, target.cluster),
            PodRole.HELPER: needs_helper(target.job, target.cluster, job_has_ended=target.job_has_ended),
        }
        for role in filter(needed.get, needed):
            with suppress(ApiRefused):
                await self._create_pod(target, role)

    async def create_collector(self, target: CompanionTarget, recorded: CompanionStatus) -> bool:
        """With Virtual delivery: a pod that copies the results of an ended job. False where it is refused."""
        if needs_helper(target.job, target.cluster, job_has_ended=True):
            try:
                if await self._store_request(target, recorded) is None:
                    return False
                await self._create_pod(target, PodRole.HELPER)
            except ApiRefused:
                return False
        return True

    async def _replace_auxiliary(
        self, target: CompanionTarget, role: PodRole, recorded: CompanionStatus, now: datetime
    ) -> CompanionState:
        try:
            if await self._store_request(target, recorded) is None:  # red-box may have another CA by now
                return CompanionState(recorded, None, _name_taken("ConfigMap", target.name), refused=True)
            made = await self._create_pod(target, role)
        except ApiRefused as refusal:
            return self._refused(refusal, recorded)
        if made is None:
            return CompanionState(recorded, None)  # it exists, and the watch has not shown it yet
        count, at = replaced(recorded, now.replace(microsecond=0))
        return CompanionState(recorded.model_copy(update={"replaced": count, "replaced_at": at}), None)

    async def _name_conflict(
        self, target: CompanionTarget, recorded: CompanionStatus | None, role: PodRole
    ) -> CompanionState:
        """A pod has the name that is not known as this SlurmJob's own; perhaps no watch has shown it."""
        existing = await self._objects.get(target.where(kinds.POD, role))
        if existing is None:
            return CompanionState(recorded, None, requeue_after_s=LEFT_OVER_S)
        pod = companion_of(existing)
        if _is_left_over(existing, target.job):
            if pod.dead_at is None:
                await self._delete(target, pod, forced=False)
            return CompanionState(recorded, None, requeue_after_s=LEFT_OVER_S)
        if not _is_owned_by(existing, target.job.uid):
            return CompanionState(recorded, None, _name_taken("pod", pod.name), refused=True)
        self._on_created(pod)
        return CompanionState(recorded, pod, requeue_after_s=0.0)

    async def _delete(self, target: CompanionTarget, pod: CompanionPod, *, forced: bool) -> None:
        where = ResourcePath(kinds.POD, pod.name, pod.namespace)
        if forced:
            await self._objects.delete(where, uid=pod.uid, gracePeriodSeconds=0)
        else:
            await self._objects.delete(where, uid=pod.uid)
        self._writer.count("Pod", "delete")
        log.info(
            "companion deleted", slurmjob=target.job.ref.full_name, pod=pod.name, uid=pod.uid, forced=forced
        )

    @staticmethod
    def _refused(refusal: ApiRefused, recorded: CompanionStatus | None) -> CompanionState:
        if refusal.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.CONFLICT} or refusal.status >= 500:  # noqa: PLR2004
            raise refusal
        problem = problem_of_refusal(str(refusal))
        return CompanionState(recorded, None, problem, refused=problem is not None)


def as_final(problem: StatusProblem) -> StatusProblem:
    """The problem of a pod that Kubernetes refused for an hour: it is not retried."""
    message = (
        f"{problem.message} (retried for an hour: fix this, then delete the SlurmJob and apply it again)"
    )
    return replace(problem, message=message, final=True)


def _is_owned_by(existing: Object, uid: str) -> bool:
    owners = existing["metadata"].get("ownerReferences", [])
    return any(owner["uid"] == uid and owner.get("controller") for owner in owners)


def _is_left_over(existing: Object, job: SlurmJob) -> bool:
    """Whether a deleted SlurmJob of this name owns it: Kubernetes will remove it, but not soon enough."""
    owners = existing["metadata"].get("ownerReferences", [])
    gone = {
        "apiVersion": job.resource.api_version,
        "kind": job.resource.name,
        "name": job.name,
        "controller": True,
    }
    return any(gone.items() <= owner.items() and owner["uid"] != job.uid for owner in owners)


def _name_taken(kind: str, name: str) -> StatusProblem:
    return StatusProblem(
        "NameTaken",
        f"{kind} {name} exists and does not belong to this SlurmJob: delete it, or rename the SlurmJob",
    )


def _is_stuck(pod: CompanionPod, now: datetime) -> bool:
    return pod.dead_at is not None and (now - pod.dead_at).total_seconds() >= STUCK_S


def _stays(name: str) -> StatusProblem:
    return StatusProblem(
        "PodNotDeleted",
        f"pod {name} was deleted, also by force, and is still there: `kubectl get pod {name} -o yaml` shows "
        "the finalizers that keep it. The job's pod is made once it is gone",
    )


def _keeps_failing(name: str) -> StatusProblem:
    return StatusProblem(
        "CompanionFails",
        f"pod {name} ended {MAX_REPLACED} times before it had finished its work; the next try is in an hour. "
        "The job in Slurm continues. `kubectl describe pod` shows what is wrong with the pod",
    )
