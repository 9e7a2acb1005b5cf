"""`/v1/jobs`: submit, look, list, watch, cancel, and act."""

from __future__ import annotations

from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from redbox.core.workload_manager import JobAction
from redbox.http.answers.problems import ALWAYS, documented
from redbox.http.answers.streaming import NDJSON, HeldStream, ndjson
from redbox.http.middleware.authenticated_route import CallersRoute
from redbox.http.openapi import REFERENCE
from redbox.http.services import AskedDep, CallerDep, OwnerDep, ServicesDep
from redbox.jobs.record.listing import Filters
from redbox.jobs.record.listing import PageRequest as PageOfJobs
from redbox_api.job_parts import RequestModel
from redbox_api.models import Cancelled, Check, Job, JobList, JobRequest, Phase, WatchEvent

router = APIRouter(tags=["jobs"], route_class=CallersRoute, responses=documented(*ALWAYS))

SignalName = Annotated[
    str,
    Query(pattern=r"^(SIG)?[A-Z0-9]{1,12}$|^[0-9]{1,2}$", description="its name or number: TERM, USR1, 10"),
]


@router.put(
    "/v1/jobs/{key}",
    response_model_exclude_none=True,
    responses={201: {"model": Job, "description": "Submitted now."}, **documented(408, 409, 413)},
)
async def submit(asked: AskedDep, body: JobRequest, services: ServicesDep, response: Response) -> Job:
    """Submit a job, or attach to the one that this key already is. Sending it again is always safe."""
    job, created = await services.jobs.put(asked.caller, asked.key, asked.attempt, body)
    response.status_code = HTTPStatus.CREATED if created else HTTPStatus.OK
    return job


@router.get("/v1/jobs/{key}", response_model_exclude_none=True, responses=documented(404))
async def look(asked: AskedDep, services: ServicesDep, owner: OwnerDep) -> Job:
    """Tell all that is known of a job; of an array also each task."""
    return await services.jobs.get(asked.caller, asked.key, asked.attempt, owner)


@router.delete("/v1/jobs/{key}", response_model_exclude_none=True, responses=documented(404))
async def cancel(
    asked: AskedDep,
    services: ServicesDep,
    owner: OwnerDep,
    *,
    all_attempts: Annotated[bool, Query(alias="allAttempts")] = False,
) -> Cancelled:
    """Cancel a job; where there is none (404), a submit that comes later is refused.

    `allAttempts` cancels every attempt and refuses any further one.
    """
    attempt = None if all_attempts else asked.attempt
    return Cancelled(items=list(await services.jobs.delete(asked.caller, asked.key, attempt, owner)))


ACTS = documented(404, 409)


@router.post("/v1/jobs/{key}/hold", response_model_exclude_none=True, responses=ACTS)
async def hold(asked: AskedDep, services: ServicesDep, owner: OwnerDep) -> Job:
    """Keep a waiting job from starting."""
    return await services.jobs.act(asked.caller, asked.key, asked.attempt, JobAction.HOLD, owner=owner)


@router.post("/v1/jobs/{key}/release", response_model_exclude_none=True, responses=ACTS)
async def release(asked: AskedDep, services: ServicesDep, owner: OwnerDep) -> Job:
    """Let a held job start."""
    return await services.jobs.act(asked.caller, asked.key, asked.attempt, JobAction.RELEASE, owner=owner)


@router.post("/v1/jobs/{key}/requeue", response_model_exclude_none=True, responses=ACTS)
async def requeue(asked: AskedDep, services: ServicesDep) -> Job:
    """Have a job run once more: the same job, and its next run."""
    return await services.jobs.act(asked.caller, asked.key, asked.attempt, JobAction.REQUEUE)


@router.post("/v1/jobs/{key}/signal", response_model_exclude_none=True, responses=ACTS)
async def send_signal(asked: AskedDep, services: ServicesDep, signal: SignalName) -> Job:
    """Send a signal to a job's processes."""
    return await services.jobs.act(asked.caller, asked.key, asked.attempt, JobAction.SIGNAL, signal=signal)


class Page(RequestModel):
    """Which part of the list, or since when to watch."""

    watch: bool = False
    since: Annotated[str | None, Field(max_length=64)] = None
    limit: Annotated[int, Field(ge=1, le=5000)] = 500
    next: Annotated[str | None, Field(alias="continue", max_length=512)] = None
    phase: tuple[Phase, ...] = ()
    namespace: Annotated[str | None, Field(max_length=253)] = None


@router.get(
    "/v1/jobs",
    response_model=JobList,
    response_model_exclude_none=True,
    responses={
        200: {"content": {NDJSON: {"schema": {"$ref": REFERENCE + WatchEvent.__name__}}}},
        **documented(410),
    },
)
async def list_or_watch(
    caller: CallerDep,
    services: ServicesDep,
    page: Annotated[Page, Query()],
) -> Response | JobList:
    """List jobs page by page, or watch them: one JSON document a line, with bookmarks every 10 s."""
    filters = Filters(phases=frozenset(page.phase) or None, namespace=page.namespace)
    if not page.watch:
        return await services.jobs.list(caller, filters, PageOfJobs(page.limit, page.next))
    async with AsyncExitStack() as held:
        held.enter_context(services.streams.one_more(caller))
        events = services.jobs.watch(caller, page.since, filters)
        return HeldStream(held.pop_all(), ndjson(events), media_type=NDJSON)
    raise AssertionError


@router.post("/v1/check", response_model_exclude_none=True, responses=documented(408, 413))
async def check(body: JobRequest, caller: CallerDep, services: ServicesDep) -> Check:
    """Ask Slurm whether it would take this, and when it would start; nothing is submitted."""
    return await services.jobs.check(caller, body)
