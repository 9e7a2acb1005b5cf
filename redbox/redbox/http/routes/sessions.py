"""`/v1/jobs/{key}/exec` and `/v1/jobs/{key}/ports/{port}`: WebSockets into a running job.

A refusal before the upgrade is a problem document, as everywhere. A plain GET of the same path gets the
refusal that the upgrade would get: for clients whose library hides the body of a failed upgrade.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocket

from redbox.core.domain import Caller, JobRef
from redbox.http.answers.problems import UnprocessableProblem, problem_responses
from redbox.http.answers.session_socket import UNAUTHORIZED, SessionSocket, logged_defects, status_of
from redbox.http.answers.validation_messages import validation_message
from redbox.http.middleware.authenticated_route import authenticated_caller, authenticated_router
from redbox.http.services import JobRefDep, Services, ServicesDep
from redbox.sessions.errors import SessionEnded
from redbox.sessions.service import OpenSession, PortRequest
from redbox_api.models import KEY_PATTERN
from redbox_api.sessions.parts import (
    NODE_NAME,
    ExecRequest,
    failure_status,
)
from redbox_shared.wire import EXEC_PROTOCOL, PORTS_PROTOCOL

Parameters = TypeVar("Parameters", bound=BaseModel)
router = authenticated_router("sessions")
Port = Annotated[int, Path(ge=1, le=65_535, description="The port on the node.")]
CHANNELS = {
    "0": "to the job: stdin, or the connection's data",
    "1": "from the job: stdout, or the connection's data",
    "2": "stderr",
    "3": "one final message: a Kubernetes Status in JSON",
    "4": 'to the job: {"Width": columns, "Height": rows}',
    "5": "to red-box: a newer token of the same caller, at most every 10 s",
    "255": "one byte, the channel that is closed",
}
REFUSALS = problem_responses(404, 409)


class PlaceParameters(BaseModel):
    """Query parameters of a connection."""

    model_config = ConfigDict(extra="forbid")

    attempt: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    node: Annotated[str | None, Field(pattern=NODE_NAME, description="one of the job's nodes")] = None
    task: Annotated[int | None, Field(ge=0, le=2**31 - 1, description="of a job array")] = None


class AttemptParameter(BaseModel):
    """The query parameter of a session."""

    model_config = ConfigDict(extra="forbid")

    attempt: Annotated[int, Field(ge=1, le=1_000_000)] = 1


class PortPath(BaseModel):
    """The path of a connection."""

    key: Annotated[str, Field(pattern=KEY_PATTERN)]
    port: Annotated[int, Field(ge=1, le=65_535)]


class JobPath(BaseModel):
    """The path of a session."""

    key: Annotated[str, Field(pattern=KEY_PATTERN)]


def described(protocol: str, first: str | None) -> dict[str, Any]:
    """The extension of the OpenAPI document for what happens after the upgrade."""
    websocket: dict[str, Any] = {"subprotocol": protocol, "channels": CHANNELS}
    if first is not None:
        websocket["firstMessage"] = {"$ref": f"#/components/schemas/{first}"}
    return {"x-websocket": websocket}


@router.get(
    "/v1/jobs/{key}/exec",
    status_code=101,
    response_class=Response,
    responses={101: {"description": "A WebSocket, if the request asks for one."}, **REFUSALS},
    openapi_extra=described(EXEC_PROTOCOL, "ExecRequest"),
)
async def explain_exec(ref: JobRefDep, services: ServicesDep) -> Response:
    """Run a command in a running job, as its user: a WebSocket of subprotocol `v1.exec.redbox.dev`."""
    await services.sessions.admit(ref)
    raise UnprocessableProblem(f"this path is a WebSocket of subprotocol {EXEC_PROTOCOL}")


@router.get(
    "/v1/jobs/{key}/ports/{port}",
    status_code=101,
    response_class=Response,
    responses={101: {"description": "A WebSocket, if the request asks for one."}, **REFUSALS},
    openapi_extra=described(PORTS_PROTOCOL, None),
)
async def explain_port(
    ref: JobRefDep,
    port: Port,
    services: ServicesDep,
    node: Annotated[str | None, Query(pattern=NODE_NAME, description="one of the job's nodes")] = None,
    task: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="of a job array")] = None,
) -> Response:
    """Connect to a port of a running job's node: a WebSocket of subprotocol `v1.ports.redbox.dev`."""
    await services.sessions.admit(ref, PortRequest(port, node, task))
    raise UnprocessableProblem(f"this path is a WebSocket of subprotocol {PORTS_PROTOCOL}")


@router.websocket("/v1/jobs/{key}/exec")
async def exec_command(socket: WebSocket) -> None:
    caller = await authenticated_caller(socket, frozenset({"attempt"}))
    path, query = validated(JobPath, socket.path_params), validated(AttemptParameter, socket.query_params)
    ref = JobRef(caller, path.key, query.attempt)
    services: Services = socket.app.state.services
    check_protocol(socket, EXEC_PROTOCOL)
    await services.sessions.admit(ref)
    with services.streams.reserve(caller.name):
        await socket.accept(EXEC_PROTOCOL)
        wire = session_socket(socket, services)

        @asynccontextmanager
        async def opened() -> AsyncIterator[tuple[OpenSession, bool]]:
            request: ExecRequest = await wire.first_message()
            async with services.sessions.command(ref, request) as session:
                yield session, request.tty

        await carry(wire, caller, services, opened)


@router.websocket("/v1/jobs/{key}/ports/{port}")
async def connect_port(socket: WebSocket) -> None:
    caller = await authenticated_caller(socket, frozenset(PlaceParameters.model_fields))
    path, query = validated(PortPath, socket.path_params), validated(PlaceParameters, socket.query_params)
    ref = JobRef(caller, path.key, query.attempt)
    services: Services = socket.app.state.services
    check_protocol(socket, PORTS_PROTOCOL)
    request = PortRequest(path.port, query.node, query.task)
    await services.sessions.admit(ref, request)
    with services.streams.reserve(caller.name):
        await socket.accept(PORTS_PROTOCOL)

        @asynccontextmanager
        async def opened() -> AsyncIterator[tuple[OpenSession, bool]]:
            async with services.sessions.connection(ref, request) as session:
                yield session, False

        await carry(session_socket(socket, services), caller, services, opened)


def session_socket(socket: WebSocket, services: Services) -> SessionSocket:
    return SessionSocket(socket, services.stall_s, partial(services.reauthorization.renew, socket))


async def carry(wire: SessionSocket, caller: Caller, services: Services, opened: Callable[[], Any]) -> None:
    """A session from its first message to its status, as long as its caller is authorized."""
    status = failure_status(*UNAUTHORIZED)
    with logged_defects(wire.socket.url.path) as errors:
        async with (
            services.reauthorization.guard(wire.socket, caller, has_end=False),
            opened() as (session, tty),
        ):
            try:
                status = await wire.run(session, is_terminal=tty)
            except SessionEnded as error:
                session.end = f"{error.reason}: {error.message}"
                raise
            finally:
                services.metrics.session_ended(session.bytes_in, session.bytes_out)
    last = status_of(errors[0]) if errors else status
    if last is not None:
        await wire.finish(last)


def validated(kind: type[Parameters], values: Mapping[str, Any]) -> Parameters:
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise UnprocessableProblem(validation_message(error.errors())) from None


def check_protocol(connection: HTTPConnection, protocol: str) -> None:
    if protocol not in connection.scope["subprotocols"]:
        raise UnprocessableProblem(f"offer the subprotocol {protocol} in Sec-WebSocket-Protocol")
