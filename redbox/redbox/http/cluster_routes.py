"""`/v1/cluster`, `/v1/partitions`, `/v1/whoami`, and what tells others that red-box lives."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from redbox.http.callers_route import CallersRoute
from redbox.http.problems import ALWAYS, Unavailable, documented
from redbox.http.services import CallerDep, ServicesDep
from redbox_api.models import Cluster, PartitionList, WhoAmI

router = APIRouter(tags=["cluster"], route_class=CallersRoute, responses=documented(*ALWAYS))
open_to_all = APIRouter(tags=["health"], responses=documented(500))
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/v1/cluster", response_model_exclude_none=True)
async def cluster(caller: CallerDep, services: ServicesDep) -> Cluster:
    """Tell what this red-box stands in front of."""
    del caller
    return await services.jobs.cluster()


@router.get("/v1/partitions", response_model_exclude_none=True)
async def partitions(caller: CallerDep, services: ServicesDep) -> PartitionList:
    """List the partitions that the caller may use, with what they have and what is free."""
    return await services.jobs.partitions(caller)


@router.get("/v1/whoami", response_model_exclude_none=True)
async def whoami(caller: CallerDep, services: ServicesDep) -> WhoAmI:
    """Tell who the caller is here, and what the caller may do."""
    return await services.jobs.whoami(caller)


@open_to_all.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """Answer that the process lives; anybody may ask."""
    return "ok\n"


@open_to_all.get("/readyz", response_class=PlainTextResponse, responses=documented(503))
async def readyz(services: ServicesDep) -> str:
    """Answer whether work should be sent here; why not is in the log, not here: anybody may ask."""
    if services.readiness.unready():
        raise Unavailable("red-box is not ready", retry_after=2)
    return "ok\n"


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
