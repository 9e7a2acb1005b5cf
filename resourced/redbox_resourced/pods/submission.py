"""From a pod on a virtual node to its job at red-box: may it have one, and does the job exist already.

A pod that runs has the job of its own uid (`pod_request`). A companion is the pod whose uid the operator
wrote into the status of the SlurmJob (or older kind) that controls it: any tenant can write names, labels and
ownerReferences. Its request is in the ConfigMap of its
name, and is used only if its digest is the one beside that uid.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from pydantic import ValidationError

from redbox_api.client import RedboxClient
from redbox_api.errors import (
    Busy,
    Conflict,
    NoSuchJob,
    NotAccepted,
    NotAllowed,
    NotAuthenticated,
    RedboxError,
    Refused,
)
from redbox_api.models import Job, JobRequest, OwnerRef, Phase
from redbox_api.pod_parts import PodUpdate
from redbox_clusters.redbox_token import RedboxToken, ServiceAccountName
from redbox_clusters.virtual_pods import kind_of_job
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, PodRef, ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterConnection
from redbox_resourced.pods.exit_status import JobRefusal
from redbox_resourced.pods.pod_request import PodRequests, RequestMemory, RequestT, Tenant, Translation
from redbox_resourced.pods.pod_view import BoundPod, BoundPodKind, ControllerRef
from redbox_resourced.pods.submission_errors import SubmissionPending, SubmissionRejected
from redbox_resourced.translation.pod import TargetPartition
from redbox_shared.keyed_semaphores import FairSlots
from redbox_shared.pod_contract import REQUEST_FILE

PUT_WITHIN_S = 20.0
"""Of all pauses between the tries of one PUT: meanwhile nothing else is done for its pod."""
BUSY_S = 1.0
COMPANIONS_AT_ONCE, OF_A_NAMESPACE = 32, 16
"""Companions whose requests are read: one has 1 MiB at most."""
DEFAULT_ACCOUNT = "default"
UNKNOWN_PART = re.compile(r"(^|; )pod(\.\S+)? is not a field of this request")
"""How a red-box that is older than this resourced refuses a pod."""
TOO_OLD = "RedboxTooOld"
NO_SUCH_NODE = "node configuration is not available"
"""In sbatch's words."""
DISK = re.compile(r"--tmp\b")
NO_DISK = (
    "The pod requests ephemeral-storage, which is --tmp in Slurm: no node has any where slurm.conf sets no "
    "TmpDisk. If nothing else is too large, leave ephemeral-storage out"
)
TOKEN_LIFETIME_S = 600  # the shortest that Kubernetes issues


def too_old_message(cluster: str) -> str:
    return (
        f"the red-box of {cluster} is older than this resourced and does not take its pods: upgrade red-box"
    )


def verify_companion(pod: BoundPod, controller: ControllerRef, owner: Object | None, cluster: str) -> str:
    """The digest of the companion's request, as the operator wrote it; raises for any other pod."""
    name = f"{controller.kind} {controller.name}"
    if owner is None or owner["metadata"]["uid"] != controller.uid:
        raise SubmissionPending("NoSuchOwner", f"the {name} that this pod belongs to does not exist")
    companion = owner.get("status", {}).get("companion", {})
    spec = owner.get("spec", {})
    account = spec.get("serviceAccountName") or (DEFAULT_ACCOUNT if "cluster" in spec else pod.account)
    if companion.get("uid") != pod.uid or companion.get("attempt", 1) != pod.attempt:
        mismatch = f"the operator has not named this pod as the companion of {name}"
    elif account != pod.account:
        mismatch = f"the pod's account is {pod.account}, that of {name} is {account}"
    elif spec.get("cluster", cluster) != cluster:
        mismatch = f"{name} is for cluster {spec['cluster']}, this node belongs to {cluster}"
    else:
        return str(companion.get("request", ""))
    raise SubmissionPending("NotTheCompanion", mismatch)


def read_request(config_map: Object | None, digest: str) -> JobRequest:
    """The request of this attempt, which the operator froze."""
    if config_map is None:
        raise SubmissionPending("NoRequest", "the ConfigMap with the job's request does not exist (yet)")
    request = str(config_map.get("data", {}).get(REQUEST_FILE, "")).encode()
    if f"sha256:{hashlib.sha256(request).hexdigest()}" != digest:
        message = "the ConfigMap of the pod's name is not the one the operator made"
        raise SubmissionPending("RequestChanged", message)
    try:
        return JobRequest.model_validate_json(request)
    except ValidationError as error:
        refusal = JobRefusal(f"This version of resourced cannot read the job's request: {error}")
        raise SubmissionRejected(refusal) from error


class PodEvidence(Protocol):
    """A pod that may have a job: the request for it."""

    def request(self) -> AbstractAsyncContextManager[JobRequest]: ...


@dataclass(frozen=True)
class CompanionEvidence:
    """A verified companion, and the digest of its request."""

    objects: ObjectClient
    pod: BoundPod
    cluster: str
    digest: str
    memory: RequestMemory
    slots: FairSlots

    def request(self) -> AbstractAsyncContextManager[JobRequest]:
        return self.memory.of(Tenant(self.cluster, self.pod.namespace), self.slots, self._read)

    async def _read(self) -> JobRequest:
        if self.pod.submitted_by_another:
            message = "the job's submitter pod has not submitted it yet"
            raise SubmissionPending("WaitsForSubmitter", message)
        path = ResourcePath(kinds.CONFIG_MAP, self.pod.name, self.pod.namespace)
        return read_request(await self.objects.get(path), self.digest)


@dataclass(frozen=True)
class RunEvidence:
    """A pod that runs: the right to create it is the right to a job of its account."""

    requests: PodRequests
    pod: BoundPod
    connection: ClusterConnection

    def request(self) -> AbstractAsyncContextManager[JobRequest]:
        return self.requests.of(self.pod, self.connection)


@dataclass(frozen=True)
class PodSubmitter:
    """Submits jobs of pods, each with the rights of the pod's own account and no others."""

    objects: ObjectClient
    translate: Translation
    token_namespaces: tuple[str, ...] = ()
    """Where the chart lets pods have tokens for the API server."""
    too_old: set[str] = field(default_factory=set)
    """SlurmClusters whose red-box does not take pods yet, as far as was tried since its last list of jobs."""
    _tokens: WeakValueDictionary[tuple[str, str], RedboxToken] = field(default_factory=WeakValueDictionary)
    """By the pod's uid and the audience, as long as a client uses it: all readers of a log share one."""
    _requests: PodRequests = field(init=False)
    """Of all pods: what they refer to is bounded together."""
    _companions: FairSlots = field(default_factory=lambda: FairSlots(COMPANIONS_AT_ONCE, OF_A_NAMESPACE))

    def __post_init__(self) -> None:
        requests = PodRequests(self.objects, self.translate, self.token_namespaces)
        object.__setattr__(self, "_requests", requests)

    async def attach_or_submit(self, pod: BoundPod, connection: ClusterConnection) -> Job:
        """The pod's job: the existing one of its key, else a new one.

        A PUT is answered with the existing one, so that nothing is asked before it; only a pod whose request
        cannot be read now needs to ask.
        """
        evidence = await self._verified(pod, connection)
        redbox = self.client_for(pod, connection)  # one for all requests: its token lives as long as it does
        with _translated_errors():
            return await self._attach_or_submit(pod, connection, evidence, redbox)

    async def _attach_or_submit(
        self, pod: BoundPod, connection: ClusterConnection, evidence: PodEvidence, redbox: RedboxClient
    ) -> Job:
        async with AsyncExitStack() as held:
            try:
                request = await held.enter_async_context(evidence.request())
            except (SubmissionPending, SubmissionRejected):
                job = await _get_job(redbox, pod)
                if job is None or job.phase is Phase.SUBMITTING:
                    raise
                return job
            try:
                return await _put_job(redbox, pod, request)
            except NotAccepted as refused:
                if pod.role is BoundPodKind.POD and UNKNOWN_PART.search(refused.problem.detail):
                    self.too_old.add(connection.cluster.name)
                    raise SubmissionPending(TOO_OLD, too_old_message(connection.cluster.name)) from refused
                if NO_SUCH_NODE in refused.problem.detail and any(map(DISK.match, request.options)):
                    sentence = f"{refused}. {NO_DISK}"
                    raise SubmissionRejected(JobRefusal(sentence, refused.problem.type)) from refused
                raise
            except Conflict as conflict:
                # The key exists with another body: it is this pod's job all the same.
                job = await _get_job(redbox, pod)
                if job is None:
                    raise SubmissionRejected(JobRefusal.by(conflict)) from conflict
                return job

    async def _verified(self, pod: BoundPod, connection: ClusterConnection) -> PodEvidence:
        if pod.role is BoundPodKind.POD:
            return RunEvidence(self._requests, pod, connection)
        controller = pod.controller
        kind = None if controller is None else kind_of_job(controller.api_version, controller.kind)
        if controller is None or kind is None:
            raise SubmissionPending("NoSuchOwner", "this pod has no owner")
        owner = await self.objects.get(ResourcePath(kind, controller.name, pod.namespace))
        cluster = connection.cluster.name
        digest = verify_companion(pod, controller, owner, cluster)
        return CompanionEvidence(self.objects, pod, cluster, digest, self._requests.memory, self._companions)

    async def submitted_job(self, pod: BoundPod, connection: ClusterConnection) -> Job | None:
        """The job of a verified pod that has submitted it; None where red-box has none."""
        try:
            with _translated_errors():
                return await _get_job(self.client_for(pod, connection), pod)
        except SubmissionRejected as rejected:  # the account lost its mapping; the job may run all the same
            raise SubmissionPending("NotAllowed", str(rejected)) from rejected

    async def cancel(self, pod: BoundPod, connection: ClusterConnection, *, force: bool) -> Job | None:
        """Cancel the job of a pod that is being deleted; None: red-box has none, and never will have it.

        As the pod's account, else as resourced itself: a token that is bound to the pod ends a minute after
        its deletion began, and its account may be gone, or made again: then the job is not that one's.
        """
        redbox = self.client_for(pod, connection)
        owner = OwnerRef(cluster=connection.cluster.name, namespace=pod.namespace, account=pod.account)
        try:
            try:
                jobs = await redbox.cancel_job(pod.key, attempt=pod.attempt, force=force)
            except (ApiRefused, NotAuthenticated, NotAllowed, NoSuchJob) as refusal:
                if isinstance(refusal, NoSuchJob) and not pod.is_submitted:
                    raise
                client = connection.client
                jobs = await client.cancel_job(pod.key, attempt=pod.attempt, force=force, owner=owner)
        except NoSuchJob:
            return None
        except RedboxError as error:
            after_s = error.retry_after if isinstance(error, Refused) else None
            why = f"the job is not cancelled yet: {error}"
            raise SubmissionPending("NotCancelled", why, after_s=after_s) from error
        return jobs[0]

    def made(
        self, pod: BoundPod, connection: ClusterConnection, make: Callable[[], Awaitable[RequestT]]
    ) -> AbstractAsyncContextManager[RequestT]:
        """What is sent for a pod that has a job, as long as it is in memory, with the bounds of requests."""
        return self._requests.made(pod, connection, make)

    async def update(self, pod: BoundPod, connection: ClusterConnection, update: PodUpdate) -> Job:
        """What has changed of a pod that has a job. Raises RedboxError."""
        return await self.client_for(pod, connection).update_pod(pod.key, update, attempt=pod.attempt)

    async def target(self, pod: BoundPod, connection: ClusterConnection) -> TargetPartition:
        return await self._requests.target(pod, connection)

    def client_for(self, pod: BoundPod, connection: ClusterConnection) -> RedboxClient:
        """A client of the node's red-box that shows a token of the pod's account, bound to the pod."""
        audience = connection.cluster.spec.audience
        token = self._tokens.get((pod.uid, audience))
        if token is None:
            account, ref = ServiceAccountName(pod.namespace, pod.account), PodRef(pod.name, pod.uid)
            token = RedboxToken(self.objects, account, audience, ref, TOKEN_LIFETIME_S)
            self._tokens[pod.uid, audience] = token
        return connection.client.speaking_for(token)


async def _get_job(redbox: RedboxClient, pod: BoundPod) -> Job | None:
    try:
        return await redbox.get_job(pod.key, attempt=pod.attempt, tasks=False)
    except NoSuchJob:
        return None


async def _put_job(redbox: RedboxClient, pod: BoundPod, request: JobRequest) -> Job:
    """Red-box limits submits per account and second: retry the PUT alone, without the requests before it."""
    left_s = PUT_WITHIN_S
    while True:
        try:
            return await redbox.put_job(pod.key, request, attempt=pod.attempt)
        except Busy as busy:
            pause_s = busy.retry_after or BUSY_S
            left_s -= pause_s
            if left_s < 0:
                raise
        await asyncio.sleep(pause_s)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Whether an error of red-box is worth a retry."""
    try:
        yield
    except NotAuthenticated as error:  # clock skew, or a key set during its rotation
        raise SubmissionPending("NotAuthenticated", str(error)) from error
    except Refused as refused:
        if refused.retry:
            raise SubmissionPending("Busy", str(refused), after_s=refused.retry_after) from refused
        raise SubmissionRejected(JobRefusal.by(refused)) from refused
    except RedboxError as error:
        raise SubmissionPending("RedboxUnreachable", str(error)) from error
