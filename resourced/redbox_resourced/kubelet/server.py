"""The kubelet API of the virtual nodes: what the API server asks of a node, for kubectl.

Logs are read through red-box. Nothing runs here that one could enter or forward to, and the answer says what
to use instead. Numbers that Slurm has not measured are left out.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus

import structlog
from aiohttp import web

from redbox_api.client import RedboxClient
from redbox_api.errors import NoSuchJob, RedboxError, Refused
from redbox_api.models import Job
from redbox_kube.api.objects import ApiError
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.kubelet import stats
from redbox_resourced.kubelet.authorization import Authorizer, KubeletClient, NodeAccess
from redbox_resourced.kubelet.logs.pod_log import PodLog
from redbox_resourced.kubelet.logs.query import (
    LogRequest,
    LogRequestRejected,
    is_empty_since,
    read_query,
    requested_attempt,
)
from redbox_resourced.kubelet.usage import PodUsage
from redbox_resourced.partitions.slurmclusters import ClusterConnection, ClusterRegistry
from redbox_resourced.pods.pod_status import NOT_RUN_MESSAGE
from redbox_resourced.pods.pod_view import BoundPod, PodRole
from redbox_resourced.pods.reconciler import PodReconciler
from redbox_resourced.pods.submission import PodSubmitter, key_of

log = structlog.get_logger(__name__)
MOST_READERS = 500  # each holds 0.3 MiB, and 1 MiB where it has stopped reading
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NOTHING_TO_ENTER = (
    "this pod stands for a Slurm job on a virtual node: no container runs here that could be entered, "
    "attached or forwarded to. Its output is in `kubectl logs`; to work beside the job use Slurm's own way, "
    "on the login node: srun --jobid=JOBID --overlap --pty bash\n"
)
PARTS = {"containerLogs": "log", "stats": "stats", "metrics": "metrics", "pods": "pods", "healthz": "healthz"}


class LogInterrupted(ConnectionError):
    """A log ended before its end, after its first bytes were sent."""


@dataclass
class KubeletApi:
    """Answers for all virtual nodes."""

    virtual_pods: PodReconciler
    clusters: ClusterRegistry
    submission: PodSubmitter
    authorizer: Authorizer
    usage: PodUsage = field(init=False)
    _broken_off: GroupedWarnings = field(default_factory=lambda: GroupedWarnings("logs broke off"))
    _readers: defaultdict[str, set[asyncio.Task[object]]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        bound = self.virtual_pods.bound
        self.usage = PodUsage(bound.pods.values, self.clusters, self.submission)
        self.virtual_pods.when_gone.append(self._end_readers)

    def runner(self) -> web.AppRunner:
        """What a listener serves; a reader who leaves ends what is read for it."""
        app = web.Application(middlewares=[self._authorized])
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        app.router.add_get("/pods", self._pods)
        app.router.add_get("/stats/summary", self._summary)
        app.router.add_get("/metrics/resource", self._metrics)
        app.router.add_get("/metrics/resource/{node}", self._metrics)
        app.router.add_get("/healthz", _well)
        for act in ("exec", "attach", "portForward", "run"):
            app.router.add_route("*", f"/{act}/{{rest:.*}}", _nothing_to_enter)
        return web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)

    @web.middleware
    async def _authorized(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Nobody is answered, not even that there is no such pod, who may not ask."""
        certificate = request.get_extra_info("peercert")
        client = KubeletClient.of(certificate) if certificate else None
        if client is None:
            return _said(HTTPStatus.UNAUTHORIZED, "a client certificate that names a user is needed")
        access = self._access(request)
        try:
            allowed = await self.authorizer.allows(client, access)
        except (ApiError, TimeoutError) as error:
            return _said(HTTPStatus.SERVICE_UNAVAILABLE, f"nobody can say whether you may: {error}")
        if not allowed:
            log.warning("refused", user=client.user, verb=access.verb, part=access.part, node=access.node)
            return _said(
                HTTPStatus.FORBIDDEN,
                f"Forbidden (user={client.user}, verb={access.verb}, resource=nodes, subresource="
                f"{access.part})",
            )
        return await handler(request)

    def _access(self, request: web.Request) -> NodeAccess:
        part = PARTS.get(request.path.split("/", 2)[1], "proxy")
        pod = self._pod(request)
        verb = "get" if request.method in {"GET", "HEAD"} else "create"
        return NodeAccess(verb, part, pod.node if pod else request.match_info.get("node", ""))

    # -- logs

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        try:
            pod, node = self._readable(request)
            asked = read_query(request.query, datetime.now(UTC))
            return await self._answer_log(request, pod, node, asked)
        except LogInterrupted:
            if request.transport is not None:
                request.transport.abort()  # no reader takes that for the log's end
            raise
        except LogRequestRejected as problem:
            return _said(problem.status, str(problem))
        except Refused as refused:
            return _said(HTTPStatus.BAD_REQUEST, f"red-box does not give this log: {refused}")
        except (RedboxError, ApiError, TimeoutError) as error:
            return _said(HTTPStatus.SERVICE_UNAVAILABLE, f"red-box cannot be asked for this log: {error}")

    def _readable(self, request: web.Request) -> tuple[BoundPod, ClusterConnection]:
        pod = self._pod(request)
        name = request.match_info["container"]
        if pod is None or name not in {one.name for one in pod.containers}:
            raise LogRequestRejected(
                f"container {name} of this pod is on none of these nodes", HTTPStatus.NOT_FOUND
            )
        node = self.clusters.of_node(pod.node)
        if pod.role is not PodRole.JOB or node is None:
            raise LogRequestRejected(NOT_RUN_MESSAGE)
        if sum(map(len, self._readers.values())) >= MOST_READERS:
            raise LogRequestRejected(
                f"{MOST_READERS} logs are read now; try later", HTTPStatus.SERVICE_UNAVAILABLE
            )
        return pod, node

    async def _answer_log(
        self, request: web.Request, pod: BoundPod, node: ClusterConnection, asked: LogRequest
    ) -> web.StreamResponse:
        """What refuses is found out before the first byte; after it, a fault breaks the answer off."""
        redbox = self.submission.speaking_for(pod, node)
        job = await self._job(redbox, pod, pod.attempt)
        attempt = requested_attempt(asked, pod.attempt, job.run)
        if attempt != pod.attempt:
            job = await self._job(redbox, pod, attempt)
        is_empty = is_empty_since(asked, job)
        answer = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        if not is_empty:
            await self._copy(PodLog(redbox, key_of(pod), attempt, job), pod, asked, answer)
        await answer.write_eof()
        return answer

    @staticmethod
    async def _job(redbox: RedboxClient, pod: BoundPod, attempt: int) -> Job:
        try:
            return await redbox.get_job(key_of(pod), attempt=attempt)
        except NoSuchJob:
            raise LogRequestRejected(_no_job(pod, attempt)) from None

    async def _copy(
        self, source: PodLog, pod: BoundPod, asked: LogRequest, answer: web.StreamResponse
    ) -> None:
        """Copy to the end of the log, of the pod, or of the reader's patience."""
        copying = asyncio.create_task(source.copy(asked, answer.write))
        self._readers[pod.uid].add(copying)
        try:
            await asyncio.wait({copying})
        finally:
            copying.cancel()
            await asyncio.wait({copying})
            self._readers[pod.uid].discard(copying)
            if not self._readers[pod.uid]:
                del self._readers[pod.uid]
        fault = None if copying.cancelled() else copying.exception()
        if fault is not None:
            pod_name = f"{pod.namespace}/{pod.name}"
            self._broken_off.failed(pod_name, repr(fault))
            self._broken_off.mended(pod_name)  # whoever reads on begins anew
            raise LogInterrupted

    def _end_readers(self, pod: BoundPod) -> None:
        """The pod is gone, and so is its log, as with containers."""
        for task in self._readers.get(pod.uid, ()):
            task.cancel()

    # -- what a kubelet says of itself

    async def _pods(self, _: web.Request) -> web.Response:
        return web.json_response(stats.pod_list(self.virtual_pods.bound.pods.values()))

    async def _summary(self, _: web.Request) -> web.Response:
        used = await self.usage.now()
        return web.json_response(stats.summary(self.virtual_pods.bound.pods.values(), used))

    async def _metrics(self, request: web.Request) -> web.Response:
        """Of one node, where it is named, as an annotation of each tells those who gather metrics."""
        used = await self.usage.now()
        node, bound = request.match_info.get("node"), self.virtual_pods.bound
        text = stats.resource_metrics(bound.on(node) if node else bound.pods.values(), used)
        return web.Response(text=text, headers=stats.METRICS_TYPE)

    def _pod(self, request: web.Request) -> BoundPod | None:
        place = (request.match_info.get("namespace", ""), request.match_info.get("pod", ""))
        return self.virtual_pods.bound.pods.get(place)


def _no_job(pod: BoundPod, attempt: int) -> str:
    """Whoever asks for a log wants to know why there is none."""
    if attempt == pod.attempt and pod.not_submitted:
        return f"the job was not submitted{'' if pod.has_ended else ' yet'}: {pod.not_submitted}"
    if pod.has_ended or attempt != pod.attempt:
        return "red-box no longer has this pod's job: its output is where Slurm wrote it"
    return "the job is not submitted yet"


async def _well(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _nothing_to_enter(_: web.Request) -> web.Response:
    return _said(HTTPStatus.METHOD_NOT_ALLOWED, NOTHING_TO_ENTER)


def _said(status: HTTPStatus, sentence: str) -> web.Response:
    return web.Response(status=status, text=sentence)
