"""`/v1/cluster`, `/v1/partitions`, `/v1/whoami`, health and the OpenAPI document."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import Field

from redbox.callers.errors import AuthenticationError
from redbox.http.answers.problems import UnavailableProblem, problem_responses
from redbox.http.answers.streaming import NDJSON, ManagedStream, ndjson
from redbox.http.middleware.authenticated_route import authenticated_router
from redbox.http.openapi import REFERENCE
from redbox.http.services import CallerDep, Services, ServicesDep
from redbox_api.job_parts import RequestModel
from redbox_api.models import Cluster, PartitionEvent, PartitionList, WhoAmI

router = authenticated_router("cluster")
public_router = APIRouter(tags=["health"], responses=problem_responses(500))


@router.get("/v1/cluster", response_model_exclude_none=True)
async def cluster(caller: CallerDep, services: ServicesDep) -> Cluster:
    """Return the Slurm cluster of this red-box."""
    del caller
    described = await services.jobs.cluster()
    end = services.credentials_expire_at()
    at = None if end is None else datetime.fromtimestamp(end, UTC)
    return described.model_copy(update={"credentials_expire_at": at})


class PartitionListQuery(RequestModel):
    """A list of the partitions, or a watch since a revision."""

    watch: bool = False
    since: Annotated[str | None, Field(max_length=64)] = None


@router.get(
    "/v1/partitions",
    response_model=PartitionList,
    response_model_exclude_none=True,
    responses={
        200: {"content": {NDJSON: {"schema": {"$ref": REFERENCE + PartitionEvent.__name__}}}},
        **problem_responses(410),
    },
)
async def list_or_watch_partitions(
    caller: CallerDep, services: ServicesDep, query: Annotated[PartitionListQuery, Query()]
) -> Response | PartitionList:
    """List the partitions that the caller may use, with their total and free resources, or watch them."""
    if not query.watch:
        return await services.jobs.partitions(caller)
    async with AsyncExitStack() as resources:
        resources.enter_context(services.streams.reserve(caller.name))
        events = await services.jobs.watch_partitions(caller, query.since)
        return ManagedStream(resources.pop_all(), ndjson(events), media_type=NDJSON)
    raise AssertionError


@router.get("/v1/whoami", response_model_exclude_none=True)
async def whoami(caller: CallerDep, services: ServicesDep) -> WhoAmI:
    """Return the caller's identity, Unix user and permissions."""
    return await services.jobs.whoami(caller)


@public_router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """Return ok while the process lives; needs no authentication."""
    return "ok\n"


@public_router.get("/readyz", response_class=PlainTextResponse, responses=problem_responses(503))
async def readyz(request: Request, services: ServicesDep) -> str:
    """Return ok while red-box can take requests; authenticated callers also see the reason and warnings."""
    is_caller = await _is_authenticated(request, services)
    reason = services.readiness.unready()
    if reason:
        raise UnavailableProblem(f"red-box is not ready{': ' + reason if is_caller else ''}", retry_after=2)
    return "\n".join(["ok", *(services.readiness.warnings() if is_caller else ()), ""])


async def _is_authenticated(request: Request, services: Services) -> bool:
    try:
        await services.authenticator.authenticate(request)
    except AuthenticationError:
        return False
    return True


@router.get("/openapi.json", include_in_schema=False)
async def openapi(caller: CallerDep, request: Request) -> JSONResponse:
    """Return the OpenAPI document, to callers of any role."""
    del caller
    return JSONResponse(request.app.openapi())
