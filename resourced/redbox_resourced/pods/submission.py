"""From a pod on a virtual node to its job at red-box: is it a companion, and does its job exist already.

A companion is the pod whose uid the operator wrote into the status of the SlurmJob (or older kind) that
controls it: name, labels and ownerReferences are for any tenant to write. What it asks for is in the
ConfigMap of its name, which is believed only if its digest is the one beside that uid.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import ValidationError

from redbox_api.client import RedboxClient
from redbox_api.errors import Busy, Conflict, NoSuchJob, NotAuthenticated, RedboxError, Refused
from redbox_api.models import Job, JobRequest, Phase
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_resourced.partitions.slurmclusters import ServedNode
from redbox_resourced.pods.exit_status import JobRefusal
from redbox_resourced.pods.pod_view import BoundPod, Controller
from redbox_resourced.pods.tokens import PodTokens
from redbox_shared.pod_contract import REQUEST_FILE

PUT_TRIES = 20
BUSY_S = 1.0
DEFAULT_ACCOUNT = "default"


class NotYet(Exception):
    """It cannot be submitted now; `reason` is one word, the message says what is waited for."""

    def __init__(self, reason: str, message: str, *, after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.after_s = after_s


class Never(Exception):
    """It can never be submitted."""

    def __init__(self, refusal: JobRefusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


def name_companion(pod: BoundPod, controller: Controller, owner: Object | None, cluster: str) -> str:
    """The digest of the request of this companion, as the operator wrote it; NotYet for any other pod."""
    called = f"{controller.kind} {controller.name}"
    if owner is None or owner["metadata"]["uid"] != controller.uid:
        raise NotYet("NoSuchOwner", f"the {called} that this pod belongs to is gone")
    companion = owner.get("status", {}).get("companion", {})
    if companion.get("uid") != pod.uid or companion.get("attempt", 1) != pod.attempt:
        raise NotYet("NotTheCompanion", f"the operator has not named this pod as the companion of {called}")
    spec = owner.get("spec", {})
    account = spec.get("serviceAccountName") or (DEFAULT_ACCOUNT if "cluster" in spec else pod.account)
    if account != pod.account:
        raise NotYet("NotTheCompanion", f"the pod's account is {pod.account}, that of {called} is {account}")
    if spec.get("cluster", cluster) != cluster:
        raise NotYet(
            "NotTheCompanion", f"{called} is for cluster {spec['cluster']}, this node is {cluster}'s"
        )
    return str(companion.get("request", ""))


def read_request(config_map: Object | None, digest: str) -> JobRequest:
    """The request as it was frozen for this attempt."""
    if config_map is None:
        raise NotYet("NoRequest", "the ConfigMap with the job's request is not there (yet)")
    request = str(config_map.get("data", {}).get(REQUEST_FILE, "")).encode()
    if f"sha256:{hashlib.sha256(request).hexdigest()}" != digest:
        raise NotYet("RequestChanged", "the ConfigMap of the pod's name is not the one the operator made")
    try:
        return JobRequest.model_validate_json(request)
    except ValidationError as error:
        raise Never(JobRefusal(f"The job's request is not one that this resourced reads: {error}")) from error


@dataclass(frozen=True)
class Submission:
    """Submits for companions, each time as the pod's own account."""

    objects: ObjectClient
    tokens: PodTokens

    async def attach_or_submit(self, pod: BoundPod, node: ServedNode) -> Job:
        """The companion's job: the one that its key is already, else a new one."""
        if pod.controller is None:
            raise NotYet("NoSuchOwner", "this pod belongs to nothing")
        digest = await self._request_digest(pod, pod.controller, node)
        redbox = self.speaking_for(pod, node)  # one for all requests: as long as it is held, so is its token
        with _judged():
            job = await self._job_at(redbox, pod)
            if job is not None and job.phase is not Phase.SUBMITTING:
                return job
            if pod.submitted_by_another:
                raise NotYet("WaitsForSubmitter", "the job's submitter pod has not submitted it yet")
            config_map = await self.objects.get(ResourcePath("ConfigMap", pod.name, pod.namespace))
            return await self._put(redbox, pod, read_request(config_map, digest))

    async def job_of_known(self, pod: BoundPod, node: ServedNode) -> Job | None:
        """The job of a pod that is known to be a companion, and to have been submitted."""
        try:
            with _judged():
                return await self._job_at(self.speaking_for(pod, node), pod)
        except Never as never:  # the account's mapping was taken away; the job may run all the same
            raise NotYet("NotAllowed", str(never)) from never

    def speaking_for(self, pod: BoundPod, node: ServedNode) -> RedboxClient:
        """The node's red-box, asked as the pod's service account."""
        return node.client.speaking_for(self.tokens.of(pod, node.cluster.spec.audience))

    @staticmethod
    async def _job_at(redbox: RedboxClient, pod: BoundPod) -> Job | None:
        """The job of a companion as red-box has it; None where it has none."""
        try:
            return await redbox.get_job(key_of(pod), attempt=pod.attempt)
        except NoSuchJob:
            return None

    @staticmethod
    async def _put_in_turn(redbox: RedboxClient, pod: BoundPod, request: JobRequest) -> Job:
        """Red-box takes so many submits a second from one account: wait here, and begin nothing anew."""
        for _ in range(PUT_TRIES - 1):
            try:
                return await redbox.put_job(key_of(pod), request, attempt=pod.attempt)
            except Busy as busy:
                await asyncio.sleep(busy.retry_after or BUSY_S)
        return await redbox.put_job(key_of(pod), request, attempt=pod.attempt)

    async def _request_digest(self, pod: BoundPod, controller: Controller, node: ServedNode) -> str:
        where = ResourcePath(controller.kind, controller.name, pod.namespace, controller.api_version)
        return name_companion(pod, controller, await self.objects.get(where), node.cluster.name)

    async def _put(self, redbox: RedboxClient, pod: BoundPod, request: JobRequest) -> Job:
        try:
            return await self._put_in_turn(redbox, pod, request)
        except Conflict as conflict:  # its own key with another body is its job all the same
            job = await self._job_at(redbox, pod)
            if job is None:
                raise Never(JobRefusal.by(conflict)) from conflict
            return job


@contextmanager
def _judged() -> Iterator[None]:
    """What red-box refuses: may it come right by itself, or never."""
    try:
        yield
    except NotAuthenticated as error:  # clocks apart, or a key set that rotates
        raise NotYet("NotAuthenticated", str(error)) from error
    except Refused as refused:
        if refused.retry:
            raise NotYet("Busy", str(refused), after_s=refused.retry_after) from refused
        raise Never(JobRefusal.by(refused)) from refused
    except RedboxError as error:
        raise NotYet("RedboxUnreachable", str(error)) from error


def key_of(pod: BoundPod) -> str:
    """At red-box: the uid of what controls the pod."""
    return pod.controller.uid if pod.controller else ""
