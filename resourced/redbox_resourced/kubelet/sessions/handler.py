"""Answers exec, attach and portForward: finds the pod, opens its session at red-box, then upgrades.

Whatever can be refused is refused before the 101: until then a refusal is a Status, which kubectl prints.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from http import HTTPStatus

import structlog
from aiohttp import web
from pydantic import ValidationError

from redbox_api.client import RedboxClient
from redbox_api.errors import RedboxError
from redbox_api.models import Job, Phase
from redbox_api.sessions.client import SessionData
from redbox_api.sessions.parts import ExecRequest, SessionChannel, SessionStatus
from redbox_kube.api.objects import ApiError
from redbox_resourced.kubelet.logs.handler import LogHandler
from redbox_resourced.kubelet.logs.pod_log import PodLog
from redbox_resourced.kubelet.logs.query import LogRequest
from redbox_resourced.kubelet.pod_finder import PodFinder
from redbox_resourced.kubelet.rejection import RequestRejected, why
from redbox_resourced.kubelet.sessions.client_streams import ClientStreams, StreamOptions
from redbox_resourced.kubelet.sessions.ending import SessionInterrupt, unless
from redbox_resourced.kubelet.sessions.job_sessions import RedboxSessions
from redbox_resourced.kubelet.sessions.open_sessions import OpenSessions
from redbox_resourced.kubelet.sessions.port_forward import PortForward
from redbox_resourced.kubelet.sessions.remote_command import Body, RemoteCommand, serve_streams
from redbox_resourced.kubelet.sessions.session_command import SessionCommand, read_session_command
from redbox_resourced.kubelet.sessions.statuses import (
    SUCCESS,
    internal_error,
    refused_by_redbox,
    status_response,
)
from redbox_resourced.kubelet.sessions.stream_connection import Upgrade
from redbox_resourced.kubelet.sessions.upgrades import upgrade_for_command, upgrade_for_forward
from redbox_resourced.kubelet.shares import TooManyOpen
from redbox_resourced.kubelet.spdy.upgrade import ACCEPTED_HEADER, NotUpgradable
from redbox_resourced.kubelet.turns import NamespaceTurns, Turn
from redbox_resourced.pods.pod_view import BoundPod, BoundPodKind, PodContainer

log = structlog.get_logger(__name__)
ONLY_UPGRADES = "exec, attach and portForward are opened by POST with SPDY/3.1, or by GET as a WebSocket"
NO_STDIN = (
    "this container has no standard input to attach to: leave out -i, give it stdin: true, or use "
    "kubectl exec -it, which opens a session of its own in the job"
)


@dataclass(frozen=True)
class SessionRequest:
    """One request, the pod that it names, and what may end its session."""

    http: web.Request
    pod: BoundPod
    redbox: RedboxClient
    """As the pod's own account: no token of resourced itself opens a session."""
    interrupt: SessionInterrupt
    turn: Turn
    """Of its namespace."""

    @property
    def container(self) -> str:
        return self.http.match_info.get("container", "")

    @property
    def jobs(self) -> RedboxSessions:
        return RedboxSessions(self.redbox, self.pod.key, self.pod.attempt)


class SessionHandler:
    """Serves the sessions of all pods, a bounded number of them."""

    def __init__(self, finder: PodFinder, logs: LogHandler, turns: NamespaceTurns) -> None:
        self._finder = finder
        self._logs = logs
        self._open = OpenSessions()
        self._turns = turns

    async def exec(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "exec", self._exec)

    async def attach(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "attach", self._attach)

    async def port_forward(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "portForward", self._port_forward)

    async def only_upgrades(self, _: web.Request) -> web.Response:
        return status_response(HTTPStatus.METHOD_NOT_ALLOWED, ONLY_UPGRADES, {"Allow": "GET, POST"})

    def end_sessions(self, pod: BoundPod) -> None:
        """Of a deleted pod."""
        self._open.end(pod, "the pod was deleted")

    async def end_all(self, _: web.Application) -> None:
        """Before connections are closed: each client gets its status."""
        self._open.end_all("resourced, the kubelet of this node, is stopping: begin again in a minute")

    async def _answer(
        self,
        http: web.Request,
        action: str,
        serve: Callable[[SessionRequest], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        try:
            with self._registered(http) as request:
                log.info("session", action=action, pod=f"{request.pod.namespace}/{request.pod.name}")
                return await serve(request)
        except RequestRejected as rejected:
            return status_response(rejected.status, str(rejected))
        except TooManyOpen as busy:
            return status_response(HTTPStatus.SERVICE_UNAVAILABLE, str(busy))
        except NotUpgradable as refused:
            status = HTTPStatus.FORBIDDEN if refused.accepted else HTTPStatus.BAD_REQUEST
            accepted = {ACCEPTED_HEADER: ", ".join(refused.accepted)} if refused.accepted else None
            return status_response(status, str(refused), accepted)
        except RedboxError as error:
            return refused_by_redbox(error)
        except (ApiError, TimeoutError) as error:
            message = f"no token of the pod's account for this session: {why(error)}"
            return status_response(HTTPStatus.SERVICE_UNAVAILABLE, message)

    @contextmanager
    def _registered(self, http: web.Request) -> Iterator[SessionRequest]:
        """The request of one session, which ends with its pod."""
        pod, redbox = self._finder.find(http)
        if pod.has_ended:
            raise RequestRejected("this pod has ended: no session can be opened in its job")
        with self._open.opened(pod) as interrupt:
            yield SessionRequest(http, pod, redbox, interrupt, self._turns.of(pod.namespace))

    async def _exec(self, request: SessionRequest) -> web.StreamResponse:
        options = StreamOptions.read(request.http.query)
        upgrade = upgrade_for_command(request.http, options)
        wanted = _read_request(request, options)
        return await self._run(request, upgrade, options, wanted)

    async def _run(
        self, request: SessionRequest, upgrade: Upgrade, options: StreamOptions, wanted: ExecRequest
    ) -> web.StreamResponse:
        job = await request.jobs.open_session()
        try:
            return await _serve(request, upgrade, options, RemoteCommand(wanted, job).run)
        finally:
            await job.close()

    async def _attach(self, request: SessionRequest) -> web.StreamResponse:
        """The main process of a container with stdin or a terminal; of others the log from now on."""
        options = StreamOptions.read(request.http.query)
        container = request.pod.container(request.container)
        is_pod = request.pod.role is BoundPodKind.POD
        if is_pod and container is not None and (container.has_stdin or container.has_terminal):
            return await self._attach_to_process(request, options, container)
        if options.stdin:
            raise RequestRejected(NO_STDIN)
        upgrade = upgrade_for_command(request.http, options)
        wanted = LogRequest(follow=True, tail_lines=0)
        pod_log, query = await self._logs.find_log(request.redbox, request.pod, request.container, wanted)
        channel = SessionChannel.STDOUT if options.stdout else SessionChannel.STDERR

        async def copy(streams: ClientStreams) -> SessionStatus:
            return await _copy_log(pod_log, query, streams, channel)

        with self._logs.share_of_tasks(request.pod, pod_log):
            return await _serve(request, upgrade, options, copy)

    async def _attach_to_process(
        self, request: SessionRequest, options: StreamOptions, container: PodContainer
    ) -> web.StreamResponse:
        """Whether there is a terminal is the container's own word, not the client's."""
        upgrade = upgrade_for_command(request.http, options)
        has_input = options.stdin and container.has_stdin
        wanted = ExecRequest(
            attach=True, container=container.name, stdin=has_input, tty=options.tty and container.has_terminal
        )
        return await self._run(request, upgrade, options, wanted)

    async def _port_forward(self, request: SessionRequest) -> web.StreamResponse:
        upgrade = upgrade_for_forward(request.http)
        job = await request.redbox.get_job(request.pod.key, attempt=request.pod.attempt)
        _check_running(job)
        async with upgrade.serve(request.turn) as session:
            taken = partial(self._open.connections.taken, request.pod.namespace)
            ports = job.pod.chosen_ports if job.pod else {}
            forward = PortForward(session, request.jobs, taken, ports)
            await unless(forward.serve(), request.interrupt.happened)
        return upgrade.response


def _read_request(request: SessionRequest, options: StreamOptions) -> ExecRequest:
    words = request.http.query.getall("command", [])
    if not words:
        raise RequestRejected("a command is required")
    is_pod = request.pod.role is BoundPodKind.POD
    wanted = SessionCommand(words) if is_pod else read_session_command(words)
    try:
        return ExecRequest.model_validate(
            {
                **asdict(wanted),
                "tty": options.tty,
                "stdin": options.stdin,
                "container": request.container if is_pod else None,
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise RequestRejected(f"{'.'.join(map(str, first['loc']))} is refused: {first['msg']}") from None


async def _serve(
    request: SessionRequest, upgrade: Upgrade, options: StreamOptions, body: Body
) -> web.StreamResponse:
    async with upgrade.serve(request.turn, request.interrupt.happened) as session:
        await serve_streams(session, options, request.interrupt, body)
    return upgrade.response


async def _copy_log(
    pod_log: PodLog, query: LogRequest, streams: ClientStreams, channel: SessionChannel
) -> SessionStatus:
    async def write(data: bytes) -> None:
        await streams.write_output(SessionData(channel, data))

    status = SUCCESS
    try:
        await pod_log.copy(query, write)
    except* (RedboxError, ApiError, TimeoutError) as errors:
        status = internal_error(f"the job's log cannot be read any more: {why(errors.exceptions[0])}")
    return status


def _check_running(job: Job) -> None:
    if job.phase is not Phase.RUNNING:
        message = f"the Slurm job is {job.state or job.phase.value}: only a running job has ports to forward"
        raise RequestRejected(message, HTTPStatus.CONFLICT)
