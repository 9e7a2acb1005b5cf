"""Keeps one companion for an attempt until it has said its last word: made, believed by uid, made again.

What it asks of red-box is frozen in an immutable ConfigMap of its name before it is made. An object of that
name that says it is ours, and whose uid or digest was never recorded, was made before a crash, or forged: it
is deleted and made anew. Anybody else's is left alone, and its name is what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus

import structlog

from redbox_api.models import Dependency
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.slurm_cluster import SlurmCluster
from redbox_operator.api.constants import Role, pod_name
from redbox_operator.api.problems import Problem
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_status import CompanionStatus
from redbox_operator.companion.admission_errors import problem_of_refusal
from redbox_operator.companion.builder import (
    companion_pod,
    config_map,
    needs_collector,
    needs_submitter,
    reaches,
    request_digest,
)
from redbox_operator.companion.plan import (
    MOST_REPLACED,
    Companion,
    Step,
    companion_of,
    plan_for,
    plan_for_other,
    replaced,
)
from redbox_operator.status_writer import Writer
from redbox_shared.pod_contract import CA_FILE, REQUEST_FILE

log = structlog.get_logger(__name__)
DELETED_AGAIN_S = 5.0
LEFT_OVER_AGAIN_S = 0.5
SCRIPT_AGAIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Kept:
    """The companion after a step: what is recorded of it, and what is wrong."""

    recorded: CompanionStatus | None
    pod: Companion | None
    problem: Problem | None = None
    again_in_s: float | None = None
    refused: bool = False  # Kubernetes did not let it be made: tried again, each time later
    is_first: bool = False  # of its attempt: nobody can have submitted it before


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which companion: of which attempt, on which cluster."""

    job: SlurmJob
    cluster: SlurmCluster
    attempt: int
    dependencies: Sequence[Dependency] = ()

    @property
    def name(self) -> str:
        return pod_name(self.job.name, self.attempt)

    def where(self, kind: str, role: Role = Role.JOB) -> ResourcePath:
        return ResourcePath(kind, pod_name(self.job.name, self.attempt, role), self.job.namespace)


@dataclass(frozen=True, slots=True)
class Frozen:
    """What an attempt asks of red-box. `is_new`: not even a process that crashed has made a pod of it."""

    digest: str
    is_new: bool


class CompanionKeeper:
    """Takes the next step that a companion needs."""

    def __init__(self, writer: Writer, image: str, seen: Callable[[Companion], bool]) -> None:
        """`seen` hears of each companion that was made."""
        self._objects = writer.objects
        self._writer = writer
        self._image = image
        self._seen = seen

    async def keep(
        self, wanted: Wanted, recorded: CompanionStatus | None, pod: Companion | None, now: datetime
    ) -> Kept:
        """One step towards a companion that says its last word."""
        plan = plan_for(recorded, pod, wanted.job.uid, reaches(wanted.cluster), now)
        match plan.step:
            case Step.MAKE:
                return await self._make(wanted, recorded, now)
            case Step.DELETE | Step.FORCE:
                assert pod is not None  # noqa: S101 (no such plan without one)
                await self._delete(wanted, pod, forced=plan.step is Step.FORCE)
                return Kept(recorded, pod, again_in_s=plan.again_in_s or DELETED_AGAIN_S)
            case Step.NOTE_LAST_WORD:
                assert recorded is not None  # noqa: S101 (its uid was compared)
                return Kept(recorded.model_copy(update={"done": True}), pod)
            case Step.FOREIGN:
                return Kept(recorded, None, _name_taken("pod", wanted.name), refused=True)
            case Step.GIVEN_UP:
                return Kept(recorded, pod, _keeps_failing(wanted.name), plan.again_in_s)
            case Step.KEEP:
                return Kept(recorded, pod, again_in_s=plan.again_in_s)

    async def _make(self, wanted: Wanted, recorded: CompanionStatus | None, now: datetime) -> Kept:
        try:
            if missing := await self._script_missing(wanted):
                return Kept(recorded, None, missing, again_in_s=SCRIPT_AGAIN_S)
            frozen = await self._freeze(wanted, recorded)
            if frozen is None:
                return Kept(recorded, None, _name_taken("ConfigMap", wanted.name), refused=True)
            made = await self._create_pod(wanted, Role.JOB)
        except ApiRefused as refusal:
            return self._refused(refusal, recorded)
        if made is None:
            return await self._in_the_way(wanted, recorded)
        pod = companion_of(made)
        await self._make_others(wanted)
        count, at = replaced(recorded, now.replace(microsecond=0))
        names = {"name": pod.name, "uid": pod.uid, "attempt": wanted.attempt, "request": frozen.digest}
        companion = CompanionStatus(**names, replaced=count, replaced_at=at)
        return Kept(companion, pod, is_first=frozen.is_new)

    async def _script_missing(self, wanted: Wanted) -> Problem | None:
        """A pod whose volume is missing waits without a word: it is not made before the script is there."""
        if wanted.job.spec.batch_from is None:
            return None
        source = wanted.job.spec.batch_from.config_map_key_ref
        there = await self._objects.get(ResourcePath("ConfigMap", source.name, wanted.job.namespace))
        if there and source.key in {**(there.get("data") or {}), **(there.get("binaryData") or {})}:
            return None
        place = f"key {source.key} in ConfigMap {source.name}" if there else f"ConfigMap {source.name}"
        words = f"there is no {place}, which the script is to come from: create it, and the job goes on"
        return Problem("ScriptMissing", words)

    async def _freeze(self, wanted: Wanted, recorded: CompanionStatus | None) -> Frozen | None:
        """The request, frozen before any pod can submit it; None where the name is taken.

        It stays what it is where only the authority beside it is another one now.
        """
        body = config_map(wanted.job, wanted.cluster, wanted.attempt, wanted.dependencies)
        for again in (False, True):
            digest = request_digest(body)
            if await self._objects.create(ResourcePath("ConfigMap", namespace=wanted.job.namespace), body):
                self._writer.count("ConfigMap", "create")
                return Frozen(digest, is_new=recorded is None and not again)
            there = await self._objects.get(wanted.where("ConfigMap"))
            if there is None:
                continue
            found = request_digest(there) if "request.json" in there.get("data", {}) else None
            ours = _says_ours(there, wanted.job.uid)
            expected = {digest, recorded.request if recorded else None}
            if found and ours and there.get("immutable") and found in expected:
                if there["data"].get(CA_FILE) == body["data"][CA_FILE]:
                    return Frozen(found, is_new=False)
                body["data"][REQUEST_FILE] = there["data"][REQUEST_FILE]
            elif not ours and not _is_left_over(there, wanted.job):
                return None
            await self._objects.delete(wanted.where("ConfigMap"), uid=there["metadata"]["uid"])
        return None

    async def _create_pod(self, wanted: Wanted, role: Role) -> Object | None:
        body = companion_pod(wanted.job, wanted.cluster, wanted.attempt, self._image, role)
        made = await self._objects.create(ResourcePath("Pod", namespace=wanted.job.namespace), body)
        if made is not None:
            self._writer.count("Pod", "create")
            self._seen(companion_of(made))
            log.info("companion made", slurmjob=_name(wanted.job), pod=body["metadata"]["name"])
        return made

    async def _make_others(self, wanted: Wanted) -> None:
        """With Virtual delivery: pods for what needs a kubelet. One that is refused counts as lost."""
        if needs_submitter(wanted.job, wanted.cluster):
            with suppress(ApiRefused):
                await self._create_pod(wanted, Role.SUBMIT)

    async def collect(self, wanted: Wanted) -> None:
        """With Virtual delivery: a pod that copies the results, once the job is final."""
        if needs_collector(wanted.job, wanted.cluster):
            with suppress(ApiRefused):
                await self._create_pod(wanted, Role.COLLECT)

    async def keep_other(
        self, wanted: Wanted, role: Role, recorded: CompanionStatus, pod: Companion | None, now: datetime
    ) -> Kept:
        """One step towards the same of a pod beside the companion, which was made once already."""
        plan = plan_for_other(recorded, pod, wanted.job.uid, reaches(wanted.cluster), now)
        name = pod_name(wanted.job.name, wanted.attempt, role)
        match plan.step:
            case Step.MAKE:
                return await self._make_other(wanted, role, recorded, now)
            case Step.DELETE | Step.FORCE:
                assert pod is not None  # noqa: S101 (no such plan without one)
                await self._delete(wanted, pod, forced=plan.step is Step.FORCE)
                return Kept(recorded, None, again_in_s=DELETED_AGAIN_S)
            case Step.FOREIGN:
                return Kept(recorded, None, _name_taken("pod", name), refused=True)
            case Step.GIVEN_UP:
                return Kept(recorded, None, _keeps_failing(name), plan.again_in_s)
            case _:
                return Kept(recorded, None, again_in_s=plan.again_in_s)

    async def _make_other(self, wanted: Wanted, role: Role, recorded: CompanionStatus, now: datetime) -> Kept:
        try:
            made = await self._create_pod(wanted, role)
        except ApiRefused as refusal:
            return self._refused(refusal, recorded)
        if made is None:
            return Kept(recorded, None)  # there is one that the watch has yet to show
        count, at = replaced(recorded, now.replace(microsecond=0))
        return Kept(recorded.model_copy(update={"replaced": count, "replaced_at": at}), None)

    async def _in_the_way(self, wanted: Wanted, recorded: CompanionStatus | None) -> Kept:
        """A pod that no watch has shown has the name."""
        there = await self._objects.get(wanted.where("Pod"))
        if there is None:
            return Kept(recorded, None, again_in_s=0.0)
        pod = companion_of(there)
        if _is_left_over(there, wanted.job):
            if pod.dead_at is None:
                await self._delete(wanted, pod, forced=False)
            return Kept(recorded, None, again_in_s=LEFT_OVER_AGAIN_S)
        if not _says_ours(there, wanted.job.uid):
            return Kept(recorded, None, _name_taken("pod", wanted.name), refused=True)
        self._seen(pod)
        return Kept(recorded, pod, again_in_s=0.0)

    async def _delete(self, wanted: Wanted, pod: Companion, *, forced: bool) -> None:
        where = ResourcePath("Pod", pod.name, pod.namespace)
        await self._objects.delete(where, uid=pod.uid, grace_s=0 if forced else None)
        self._writer.count("Pod", "delete")
        log.info("companion deleted", slurmjob=_name(wanted.job), pod=pod.name, uid=pod.uid, forced=forced)

    @staticmethod
    def _refused(refusal: ApiRefused, recorded: CompanionStatus | None) -> Kept:
        if refusal.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.CONFLICT} or refusal.status >= 500:  # noqa: PLR2004
            raise refusal
        problem = problem_of_refusal(str(refusal))
        return Kept(recorded, None, problem, refused=problem is not None)


def given_up(problem: Problem) -> Problem:
    """What could not be made for so long that it is tried no more."""
    message = f"{problem.message} (tried for an hour: mend this, then delete the SlurmJob and apply it again)"
    return replace(problem, message=message, final=True)


def _says_ours(there: Object, uid: str) -> bool:
    owners = there["metadata"].get("ownerReferences", [])
    return any(owner["uid"] == uid and owner.get("controller") for owner in owners)


def _is_left_over(there: Object, job: SlurmJob) -> bool:
    """Of a SlurmJob of this name that is no more: Kubernetes removes it, only later than one waits for."""
    owners = there["metadata"].get("ownerReferences", [])
    gone = {
        "apiVersion": job.resource.api_version,
        "kind": job.resource.kind,
        "name": job.name,
        "controller": True,
    }
    return any(gone.items() <= owner.items() and owner["uid"] != job.uid for owner in owners)


def _name_taken(kind: str, name: str) -> Problem:
    return Problem(
        "NameTaken",
        f"there is a {kind} {name} that is not this SlurmJob's: delete it, or give the SlurmJob another name",
    )


def _keeps_failing(name: str) -> Problem:
    return Problem(
        "CompanionFails",
        f"pod {name} ended {MOST_REPLACED} times without its last word, so it is left alone for an hour; the "
        "job in Slurm goes on. `kubectl describe pod` tells what is wrong with it",
    )


def _name(job: SlurmJob) -> str:
    return f"{job.namespace}/{job.name}"
