"""`/v1/jobs/{key}/exec` and `/v1/jobs/{key}/ports`: WebSockets into a running job; and what renews them.

A refusal before the upgrade is a problem document, as everywhere. A plain GET of the same path gets the
refusal that the upgrade would get: for clients whose library hides the body of a failed upgrade.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from redbox.callers.authenticator import bearer_token
from redbox.callers.peers import UNREAD_S
from redbox.core.domain import Caller, JobRef
from redbox.http.answers.command_socket import CommandSocket
from redbox.http.answers.forward_socket import ForwardSocket
from redbox.http.answers.problems import NotFoundProblem, UnprocessableProblem, problem_responses
from redbox.http.answers.session_socket import UNAUTHORIZED, SessionSocket, logged_defects, status_of
from redbox.http.answers.validation_messages import validation_message
from redbox.http.middleware.authenticated_route import authenticated_caller, authenticated_router
from redbox.http.services import CallerDep, JobRefDep, Services, ServicesDep
from redbox.relay.program.frames import MAX_DATA
from redbox.sessions.errors import SessionEnded
from redbox.sessions.open_session import OpenForward, OpenSession
from redbox.sessions.service import EXEC, FORWARD
from redbox_api.models import KEY_PATTERN
from redbox_api.sessions.parts import failure_status, success_status
from redbox_shared.wire import (
    EXEC_PROTOCOL,
    MESSAGE_COST,
    PORTS_MORE_TO_JOB,
    PORTS_PROTOCOL,
    PORTS_WINDOW,
    STREAM_HEADER,
)

router = authenticated_router("sessions")
CHANNELS = {
    "0": "to the job: stdin",
    "1": "from the job: stdout",
    "2": "stderr",
    "3": "one final message: a Kubernetes Status in JSON",
    "4": 'to the job: {"Width": columns, "Height": rows}',
    "5": "to red-box: a newer token of the same caller, at most every 10 s; better is /v1/streams",
    "255": "one byte, the channel that is closed",
}
PORT_CHANNELS = {
    "": "after the channel: the connection's number in four bytes, which the client chooses; 0: the forward",
    "0": "to the job: data",
    "1": "from the job: data",
    "3": "the connection's end, or with 0 the forward's: a Kubernetes Status in JSON",
    "5": "to red-box, with 0: a newer token of the same caller, at most every 10 s; better is /v1/streams",
    "6": "to red-box: a new connection, as JSON",
    "7": f"credit in four bytes: each way at first {PORTS_WINDOW}, which from the job is the most; to the "
    f"job red-box grants {PORTS_MORE_TO_JOB} at once, and again all that it has passed on; data cost "
    f"{MESSAGE_COST} and their length, at most {MAX_DATA} of red-box's",
    "255": "one byte: 0, the client sends no more; 1, the job sends no more, or the client gives it up",
}
REFUSALS = problem_responses(404, 409)
UPGRADE = {
    "description": "A WebSocket, if the request asks for one.",
    "headers": {
        STREAM_HEADER: {
            "description": "The id of the stream, in the path of the request that renews it.",
            "schema": {"type": "string"},
        }
    },
}
NO_STREAM = "there is no session or forward of this caller with this id: it may have ended"

Taking = Callable[["OpenSession | OpenForward"], AbstractContextManager[None]]


class AttemptParameter(BaseModel):
    """The query parameter of a session."""

    model_config = ConfigDict(extra="forbid")

    attempt: Annotated[int, Field(ge=1, le=1_000_000)] = 1


class ForwardParameters(AttemptParameter):
    """The query parameters of a forward."""

    task: Annotated[int | None, Field(ge=0, le=2**31 - 1, description="of a job array")] = None


class JobPath(BaseModel):
    """The path of both."""

    key: Annotated[str, Field(pattern=KEY_PATTERN)]


Model = TypeVar("Model", bound=BaseModel)
Parameters = TypeVar("Parameters", bound=AttemptParameter)


def described(protocol: str, channels: Mapping[str, str], **messages: str) -> dict[str, Any]:
    """The extension of the OpenAPI document for what happens after the upgrade."""
    schemas = {name: {"$ref": f"#/components/schemas/{schema}"} for name, schema in messages.items()}
    return {"x-websocket": {"subprotocol": protocol, "channels": channels, **schemas}}


@router.get(
    "/v1/jobs/{key}/exec",
    status_code=101,
    response_class=Response,
    responses={101: UPGRADE, **REFUSALS},
    openapi_extra=described(EXEC_PROTOCOL, CHANNELS, firstMessage="ExecRequest"),
)
async def explain_exec(ref: JobRefDep, services: ServicesDep) -> Response:
    """Run a command in a running job, as its user: a WebSocket of subprotocol `v1.exec.redbox.dev`."""
    await services.sessions.admit(ref)
    raise UnprocessableProblem(f"this path is a WebSocket of subprotocol {EXEC_PROTOCOL}")


@router.get(
    "/v1/jobs/{key}/ports",
    status_code=101,
    response_class=Response,
    responses={101: UPGRADE, **REFUSALS},
    openapi_extra=described(PORTS_PROTOCOL, PORT_CHANNELS, open="PortRequest"),
)
async def explain_ports(
    ref: JobRefDep,
    services: ServicesDep,
    task: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="of a job array")] = None,
) -> Response:
    """Connect to ports of a running job's nodes: a WebSocket of subprotocol `v1.ports.redbox.dev`."""
    await services.sessions.admit(ref, FORWARD, task)
    raise UnprocessableProblem(f"this path is a WebSocket of subprotocol {PORTS_PROTOCOL}")


@router.post(
    "/v1/streams/{stream}/renew",
    status_code=204,
    response_class=Response,
    response_description="The stream goes on.",
    responses=problem_responses(404),
)
async def renew_stream(
    request: Request,
    caller: CallerDep,
    services: ServicesDep,
    stream: Annotated[str, Path(description=f"The id in `{STREAM_HEADER}` of the upgrade.")],
) -> None:
    """Have a session or forward go on by the token of this request, which is a newer one of the same caller.

    One that expires sooner than the one that counts changes nothing.
    """
    token = bearer_token(request.scope["headers"])
    if token is None:
        raise UnprocessableProblem(
            "this request has no token: a stream goes on by the one in its Authorization header. A session "
            "that began without a token, at the Unix socket, does not expire"
        )
    if not services.reauthorization.renew(stream, caller, token.encode()):
        raise NotFoundProblem(NO_STREAM)


@router.websocket("/v1/jobs/{key}/exec")
async def exec_command(socket: WebSocket) -> None:
    caller, ref, _ = await admitted(socket, AttemptParameter, EXEC_PROTOCOL, EXEC)
    services: Services = socket.app.state.services
    with services.streams.reserve(caller.name):
        wire = CommandSocket(socket)
        await wire.accept(EXEC_PROTOCOL)

        async def run(taking: Taking) -> bytes:
            await services.sessions.expect(ref)
            request = await wire.first_message()
            async with services.sessions.command(ref, request) as session:
                with taking(session):
                    return await wire.run(session, is_terminal=request.tty)

        await carry(wire, caller, services, run)


@router.websocket("/v1/jobs/{key}/ports")
async def connect_ports(socket: WebSocket) -> None:
    caller, ref, query = await admitted(socket, ForwardParameters, PORTS_PROTOCOL, FORWARD)
    services: Services = socket.app.state.services
    with services.streams.reserve(caller.name):
        wire = ForwardSocket(socket)
        await wire.accept(PORTS_PROTOCOL)

        async def run(taking: Taking) -> bytes:
            async with services.sessions.forward(ref, query.task) as forward:
                with taking(forward):
                    await wire.run(forward)
            return success_status()

        await carry(wire, caller, services, run)


async def admitted(
    socket: WebSocket, parameters: type[Parameters], protocol: str, act: str
) -> tuple[Caller, JobRef, Parameters]:
    """Who calls, and for which job; raises what refuses the upgrade."""
    caller = await authenticated_caller(socket, frozenset(parameters.model_fields))
    path, query = validated(JobPath, socket.path_params), validated(parameters, socket.query_params)
    ref = JobRef(caller, path.key, query.attempt)
    if protocol not in socket.scope["subprotocols"]:
        raise UnprocessableProblem(f"offer the subprotocol {protocol} in Sec-WebSocket-Protocol")
    services: Services = socket.app.state.services
    await services.sessions.admit(ref, act, getattr(query, "task", None))
    return caller, ref, query


async def carry(
    wire: SessionSocket,
    caller: Caller,
    services: Services,
    run: Callable[[Taking], Awaitable[bytes]],
) -> None:
    """A session, or a forward, until its status, as long as its caller is authorized."""
    status: bytes | None = failure_status(*UNAUTHORIZED)
    within_s = services.stall_s
    with logged_defects(wire.socket.url.path) as errors:
        async with services.reauthorization.guard(
            wire.socket, caller, has_end=False, identifier=wire.identifier
        ) as is_unauthorized:

            @contextmanager
            def taking(session: OpenSession | OpenForward) -> Iterator[None]:
                try:
                    yield
                except SessionEnded as error:
                    session.end = f"{error.reason}: {error.message}"
                    raise
                except asyncio.CancelledError:
                    if is_unauthorized():
                        session.end = ": ".join(UNAUTHORIZED)
                    raise
                finally:
                    services.metrics.session_ended(session.bytes_in, session.bytes_out)

            status = await run(taking)
            within_s = UNREAD_S  # a reader may pause at the end as before it
    if errors:
        status = status_of(errors[0])
    if status is not None:
        await wire.finish(status, within_s)


def validated(kind: type[Model], values: Mapping[str, Any]) -> Model:
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise UnprocessableProblem(validation_message(error.errors())) from None
