"""`/v1/cluster`, `/v1/partitions`, `/v1/whoami`, and what tells others that red-box lives."""

from __future__ import annotations

from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import Field

from redbox.callers.errors import AuthenticationError
from redbox.http.answers.problems import ALWAYS, Unavailable, documented
from redbox.http.answers.streaming import NDJSON, HeldStream, ndjson
from redbox.http.middleware.authenticated_route import CallersRoute
from redbox.http.openapi import REFERENCE
from redbox.http.services import CallerDep, Services, ServicesDep
from redbox_api.job_parts import RequestModel as Asked
from redbox_api.models import Cluster, PartitionEvent, PartitionList, WhoAmI

router = APIRouter(tags=["cluster"], route_class=CallersRoute, responses=documented(*ALWAYS))
open_to_all = APIRouter(tags=["health"], responses=documented(500))
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/v1/cluster", response_model_exclude_none=True)
async def cluster(caller: CallerDep, services: ServicesDep) -> Cluster:
    """Tell what this red-box stands in front of."""
    del caller
    return await services.jobs.cluster()


class Since(Asked):
    """Whether to watch, and since when."""

    watch: bool = False
    since: Annotated[str | None, Field(max_length=64)] = None


@router.get(
    "/v1/partitions",
    response_model=PartitionList,
    response_model_exclude_none=True,
    responses={
        200: {"content": {NDJSON: {"schema": {"$ref": REFERENCE + PartitionEvent.__name__}}}},
        **documented(410),
    },
)
async def list_or_watch_partitions(
    caller: CallerDep, services: ServicesDep, asked: Annotated[Since, Query()]
) -> Response | PartitionList:
    """List the partitions that the caller may use, with what they have and what is free, or watch them."""
    if not asked.watch:
        return await services.jobs.partitions(caller)
    async with AsyncExitStack() as held:
        held.enter_context(services.streams.one_more(caller))
        events = await services.jobs.watch_partitions(caller, asked.since)
        return HeldStream(held.pop_all(), ndjson(events), media_type=NDJSON)
    raise AssertionError


@router.get("/v1/whoami", response_model_exclude_none=True)
async def whoami(caller: CallerDep, services: ServicesDep) -> WhoAmI:
    """Tell who the caller is here, and what the caller may do."""
    return await services.jobs.whoami(caller)


@open_to_all.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """Answer that the process lives; anybody may ask."""
    return "ok\n"


@open_to_all.get("/readyz", response_class=PlainTextResponse, responses=documented(503))
async def readyz(request: Request, services: ServicesDep) -> str:
    """Answer, to anybody, whether work should be sent here; to callers also what is amiss."""
    is_known = await _is_known(request, services)
    why_not = services.readiness.unready()
    if why_not:
        raise Unavailable(f"red-box is not ready{': ' + why_not if is_known else ''}", retry_after=2)
    return "\n".join(["ok", *(services.readiness.worries() if is_known else ()), ""])


async def _is_known(request: Request, services: Services) -> bool:
    try:
        await services.authenticator.authenticate(request)
    except AuthenticationError:
        return False
    return True


@router.get("/metrics", response_class=Response, responses={200: {"content": {EXPOSITION: {}}}})
async def metrics(caller: CallerDep, services: ServicesDep) -> Response:
    """Show the metrics, to callers of any role: counts and times, no names of users or jobs."""
    del caller
    return Response(services.metrics.exposition(), HTTPStatus.OK, media_type=EXPOSITION)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(caller: CallerDep, request: Request) -> JSONResponse:
    """Show the contract, to callers of any role."""
    del caller
    return JSONResponse(request.app.openapi())
