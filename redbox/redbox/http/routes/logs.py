"""`/v1/jobs/{key}/logs/…`: the bytes that a job wrote, from any offset, while it writes them.

A reader asks again, with the generation and offset where it stands, until the answer is 204: the job is final
and no byte is left. An answer that ends cleanly only says: ask again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi import Request as HttpRequest
from pydantic import ConfigDict, Field, model_validator

from redbox.http.answers.problems import ALWAYS, documented
from redbox.http.answers.streaming import HeldStream, closing, unless_caller_leaves
from redbox.http.middleware.authenticated_route import CallersRoute
from redbox.http.services import AskedDep, ServicesDep
from redbox.logs.service import Query as LogQuery
from redbox_api.job_parts import RequestModel
from redbox_shared.wire import GENERATION_HEADER, OFFSET_HEADER

OCTETS = "application/octet-stream"
router = APIRouter(tags=["logs"], route_class=CallersRoute, responses=documented(*ALWAYS))
Count = Annotated[int | None, Field(ge=0, le=1 << 62)]


class Place(RequestModel):
    """Where the reader stands, and how much it wants."""

    # `attempt` is read with the job; what nobody reads is refused by the route.
    model_config = ConfigDict(extra="ignore")

    task: Count = None
    generation: Annotated[str | None, Field(max_length=128)] = None
    offset: Annotated[int, Field(ge=0, le=1 << 62)] = 0
    tail: Annotated[int | None, Field(ge=0, le=1 << 62, description="only the last so many bytes")] = None
    tail_lines: Annotated[int | None, Field(ge=0, le=1_000_000)] = None
    limit: Count = None
    follow: bool = False

    @model_validator(mode="after")
    def _one_end(self) -> Place:
        if self.tail is not None and self.tail_lines is not None:
            raise ValueError("tail and tailLines exclude each other")
        return self

    def query(self) -> LogQuery:
        """The same for the logs."""
        return LogQuery(
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
        200: {"content": {OCTETS: {}}, "description": "Bytes; ask again from behind the last one."},
        204: {"description": "The job is final, and there is no further byte."},
        **documented(404),
    },
)
async def read(
    asked: AskedDep,
    stream: Literal["stdout", "stderr"],
    request: HttpRequest,
    services: ServicesDep,
    place: Annotated[Place, Query()],
) -> Response:
    """Read a log. The headers say which generation of the file this is, and at which offset it begins."""
    async with AsyncExitStack() as held:
        held.enter_context(services.streams.one_more(asked.caller))
        opening = services.logs.read(asked, stream, place.task, place.query())
        answer = await unless_caller_leaves(request, held.enter_async_context(opening))
        headers = {GENERATION_HEADER: answer.generation, OFFSET_HEADER: str(answer.offset)}
        if answer.nothing_more:
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
        pieces = _counted(answer.pieces, services.metrics.bytes_relayed)
        return HeldStream(held.pop_all(), pieces, media_type=OCTETS, headers=headers)
    raise AssertionError


async def _counted(pieces: AsyncIterator[bytes], count: Callable[[int], None]) -> AsyncIterator[bytes]:
    async with closing(pieces) as read:
        async for piece in read:
            yield piece
            count(len(piece))
