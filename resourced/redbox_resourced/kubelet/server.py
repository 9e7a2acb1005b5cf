"""The kubelet API of the virtual nodes: what the API server asks of a node, for kubectl and for metrics.

The log of a pod passes these classes:

    KubeletApi          route and authorization
    LogHandler          which pod, attempt and query
    PodLog, ArrayLog    the order of streams and of an array's tasks
    JobStreams          bytes from red-box, resumed after a break
    LogWriter           whole lines, timestamps, the limit of bytes

A session in a pod (exec, attach, portForward) passes these:

    KubeletApi          route and authorization
    SessionHandler      which pod, and what is refused; the session at red-box, then the 101
    SpdySession, ChannelSession     the client's streams, by SPDY/3.1 or over a WebSocket
    RemoteCommand, PortForward      bytes between both
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import structlog
from aiohttp import web

from redbox_kube.api.objects import ApiError
from redbox_resourced.kubelet import stats
from redbox_resourced.kubelet.authorization import Authorizer, KubeletClient, NodeAccess
from redbox_resourced.kubelet.listener import Handler
from redbox_resourced.kubelet.logs.handler import LogHandler
from redbox_resourced.kubelet.pod_finder import PodFinder
from redbox_resourced.kubelet.rejection import why
from redbox_resourced.kubelet.sessions.handler import SessionHandler
from redbox_resourced.kubelet.sessions.statuses import status_response
from redbox_resourced.kubelet.turns import NamespaceTurns
from redbox_resourced.kubelet.usage import PodUsage
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods.reconciler import PodReconciler
from redbox_resourced.pods.submission import PodSubmitter

log = structlog.get_logger(__name__)
NO_RUN = "this kubelet API runs no commands: use exec, by POST\n"
REFUSED_S = 2.0
"""For a client to read that it is refused, before its connection is broken: open, each holds 300 KiB."""
SESSIONS = ("exec", "attach", "portForward")
LONGEST_LINE = 1024 * 1024
"""Of a request's first line, which has the whole command: aiohttp's own 8,190 bytes break long ones."""
SUBRESOURCES = {"containerLogs": "log"} | {name: name for name in ("stats", "metrics", "pods", "healthz")}


class KubeletApi:
    """One HTTP application for all virtual nodes."""

    def __init__(
        self, pods: PodReconciler, clusters: ClusterRegistry, submitter: PodSubmitter, authorizer: Authorizer
    ) -> None:
        self._informer = pods.informer
        self._authorizer = authorizer
        self._usage = PodUsage(self._informer.pods.values, clusters, submitter)
        finder = PodFinder(self._informer, clusters, submitter)
        turns = NamespaceTurns()
        self._logs = LogHandler(finder, turns)
        self._sessions = SessionHandler(finder, self._logs, turns)
        pods.on_delete += [self._logs.end_readers, self._sessions.end_sessions]

    def runner(self) -> web.AppRunner:
        """For a listener; a client that disconnects cancels its handler."""
        app = web.Application(middlewares=[self._authorize])
        app.on_shutdown.append(self._sessions.end_all)
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs.handle)
        app.router.add_get("/pods", self._pods)
        app.router.add_get("/stats/summary", self._summary)
        app.router.add_get("/metrics/resource", self._metrics)
        app.router.add_get("/metrics/resource/{node}", self._metrics)
        app.router.add_get("/healthz", _healthz)
        for method in ("POST", "GET"):
            app.router.add_route(method, "/exec/{namespace}/{pod}/{container}", self._sessions.exec)
            app.router.add_route(method, "/attach/{namespace}/{pod}/{container}", self._sessions.attach)
            app.router.add_route(method, "/portForward/{namespace}/{pod}", self._sessions.port_forward)
        for action in SESSIONS:
            app.router.add_route("*", f"/{action}/{{rest:.*}}", self._sessions.only_upgrades)
        app.router.add_route("*", "/run/{rest:.*}", _no_run)
        return web.AppRunner(
            app,
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=1.0,
            max_line_size=LONGEST_LINE,
        )

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Before routing errors too: an unauthorized client does not learn whether a pod exists."""
        certificate = request.get_extra_info("peercert")
        client = KubeletClient.of(certificate) if certificate else None
        if client is None:
            message = "a client certificate that names a user is required"
            return _refusal(request, HTTPStatus.UNAUTHORIZED, message)
        access = self._access(request)
        try:
            allowed = await self._authorizer.allows(client, access)
        except (ApiError, TimeoutError) as error:
            message = f"your access cannot be checked: {why(error)}"
            return _refusal(request, HTTPStatus.SERVICE_UNAVAILABLE, message)
        if not allowed:
            user, verb, subresource = client.user, access.verb, access.subresource
            log.warning("refused", user=user, verb=verb, part=subresource, node=access.node)
            message = f"Forbidden (user={user}, verb={verb}, resource=nodes, subresource={subresource})"
            return _refusal(request, HTTPStatus.FORBIDDEN, message)
        return await handler(request)

    def _access(self, request: web.Request) -> NodeAccess:
        subresource = SUBRESOURCES.get(_first_word(request), "proxy")
        # A session by GET, as WebSockets begin, changes as much as one by POST.
        reads = request.method in {"GET", "HEAD"} and _first_word(request) not in SESSIONS
        verb = "get" if reads else "create"
        place = (request.match_info.get("namespace", ""), request.match_info.get("pod", ""))
        pod = self._informer.pods.get(place)
        return NodeAccess(verb, subresource, pod.node if pod else request.match_info.get("node", ""))

    async def _pods(self, _: web.Request) -> web.Response:
        return web.json_response(stats.pod_list(self._informer.pods.values()))

    async def _summary(self, _: web.Request) -> web.Response:
        usage = await self._usage.now()
        return web.json_response(stats.summary(self._informer.pods.values(), usage))

    async def _metrics(self, request: web.Request) -> web.Response:
        """Of one node, if the path names it: an annotation of each Node gives metrics-server that path."""
        usage = await self._usage.now()
        node = request.match_info.get("node")
        pods = self._informer.on(node) if node else self._informer.pods.values()
        return web.Response(text=stats.resource_metrics(pods, usage), headers=stats.METRICS_TYPE)


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _no_run(_: web.Request) -> web.Response:
    return web.Response(status=HTTPStatus.METHOD_NOT_ALLOWED, text=NO_RUN)


def _refusal(request: web.Request, status: HTTPStatus, message: str) -> web.Response:
    """Of a session, a Status: what else kubectl gets there is an `unknown error` to it."""
    if request.transport is not None:
        asyncio.get_running_loop().call_later(REFUSED_S, request.transport.abort)
    is_session = _first_word(request) in SESSIONS
    refusal = status_response(status, message) if is_session else web.Response(status=status, text=message)
    refusal.force_close()
    return refusal


def _first_word(request: web.Request) -> str:
    """Of the path, which has no slash where a request is CONNECT or names `*`."""
    return request.path.removeprefix("/").partition("/")[0]
