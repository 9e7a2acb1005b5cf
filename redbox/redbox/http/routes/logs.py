"""`/v1/jobs/{key}/logs/…`: the bytes of a job's output, from any offset, while the job writes them.

A reader repeats its request with the generation and offset that it has reached, until the response is 204:
the job is final and no byte is left. A clean end of any other response means: send the next request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import Query, Response
from fastapi import Request as HttpRequest
from pydantic import ConfigDict, Field, model_validator

from redbox.http.answers.problems import problem_responses
from redbox.http.answers.streaming import ManagedStream, closing, until_caller_disconnects
from redbox.http.middleware.authenticated_route import authenticated_router
from redbox.http.services import JobRefDep, ServicesDep
from redbox.logs.service import LogReadRequest
from redbox_api.job_parts import RequestModel
from redbox_api.pod_parts import DnsLabel
from redbox_shared.wire import RESTART_HEADER

OCTETS = "application/octet-stream"
router = authenticated_router("logs")
Count = Annotated[int | None, Field(ge=0, le=1 << 62)]


class LogParameters(RequestModel):
    """The reader's position, and how much it wants."""

    # `attempt` is a parameter of `job_ref`; the route rejects unknown parameters.
    model_config = ConfigDict(extra="ignore")

    task: Count = None
    container: Annotated[
        DnsLabel | None, Field(description="of a pod: this container's output, in which both streams are one")
    ] = None
    restart: Annotated[
        int | None,
        Field(ge=0, le=2**31 - 1, description="which start of the container, from 0; else the newest"),
    ] = None
    generation: Annotated[str | None, Field(max_length=128)] = None
    offset: Annotated[int, Field(ge=0, le=1 << 62)] = 0
    tail: Annotated[int | None, Field(ge=0, le=1 << 62, description="number of bytes from the end")] = None
    tail_lines: Annotated[int | None, Field(ge=0, le=1_000_000)] = None
    limit: Count = None
    follow: bool = False

    @model_validator(mode="after")
    def _one_end(self) -> LogParameters:
        if self.tail is not None and self.tail_lines is not None:
            raise ValueError("tail and tailLines exclude each other")
        if self.restart is not None and self.container is None:
            raise ValueError("restart is a start of a container: name the container, too")
        return self

    def request(self) -> LogReadRequest:
        return LogReadRequest(
            generation=self.generation or None,
            offset=self.offset,
            tail_bytes=self.tail,
            tail_lines=self.tail_lines,
            limit=self.limit,
            follow=self.follow,
        )


@router.get(
    "/v1/jobs/{key}/logs/{stream}",
    response_class=Response,
    responses={
        200: {"content": {OCTETS: {}}, "description": "Bytes; continue after the last one."},
        204: {"description": "The job is final, and no byte is left."},
        **problem_responses(404),
    },
)
async def read(
    ref: JobRefDep,
    stream: Literal["stdout", "stderr"],
    request: HttpRequest,
    services: ServicesDep,
    parameters: Annotated[LogParameters, Query()],
) -> Response:
    """Read a log. The headers carry the generation of the file, and the offset of the first byte."""
    async with AsyncExitStack() as resources:
        resources.enter_context(services.streams.reserve(ref.caller.name))
        reading = services.logs.read(
            ref,
            stream,
            parameters.task,
            parameters.request(),
            container=parameters.container,
            restart=parameters.restart,
        )
        log = await until_caller_disconnects(request, resources.enter_async_context(reading))
        headers = {"Redbox-Generation": log.generation, "Redbox-Offset": str(log.offset)}
        if log.restart is not None:
            headers[RESTART_HEADER] = str(log.restart)
        if log.complete:
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
        pieces = _counted(log.pieces, services.metrics.bytes_relayed)
        return ManagedStream(resources.pop_all(), pieces, media_type=OCTETS, headers=headers)
    raise AssertionError


async def _counted(pieces: AsyncIterator[bytes], count: Callable[[int], None]) -> AsyncIterator[bytes]:
    async with closing(pieces) as read:
        async for piece in read:
            yield piece
            count(len(piece))
