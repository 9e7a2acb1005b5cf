"""`/v1/jobs`: submit, get, list, watch, cancel, and act on jobs."""

from __future__ import annotations

from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from redbox.core.workload_manager import JobAction
from redbox.http.answers.problems import problem_responses
from redbox.http.answers.streaming import NDJSON, ManagedStream, ndjson
from redbox.http.middleware.authenticated_route import authenticated_router
from redbox.http.openapi import REFERENCE
from redbox.http.services import CallerDep, IsLargeDep, JobRefDep, OwnerDep, ServicesDep
from redbox.jobs.record.listing import Filters, PageRequest
from redbox_api.job_parts import RequestModel
from redbox_api.models import Cancelled, Check, ExpectedStart, Job, JobList, JobRequest, Phase, WatchEvent
from redbox_api.pod_parts import PodUpdate

router = authenticated_router("jobs")

SignalName = Annotated[
    str, Query(pattern=r"^(SIG)?[A-Z0-9]{1,12}$|^[0-9]{1,2}$", description="name or number: TERM, USR1, 10")
]


@router.put(
    "/v1/jobs/{key}",
    response_model_exclude_none=True,
    responses={
        201: {"model": Job, "description": "Submitted by this request."},
        **problem_responses(408, 409, 413),
    },
)
async def submit(
    ref: JobRefDep, body: JobRequest, services: ServicesDep, response: Response, *, is_large: IsLargeDep
) -> Job:
    """Submit a job, or attach to the existing job of this key. Repeating the request is always safe."""
    job, created = await services.jobs.put(ref.caller, ref.key, ref.attempt, body, is_large=is_large)
    response.status_code = HTTPStatus.CREATED if created else HTTPStatus.OK
    return job


@router.put(
    "/v1/jobs/{key}/pod",
    response_model_exclude_none=True,
    responses=problem_responses(404, 408, 409, 413),
)
async def update_pod(ref: JobRefDep, body: PodUpdate, services: ServicesDep) -> Job:
    """Replace files of a pod's volumes, or bring its deadline forward. Repeating the request is safe."""
    return await services.jobs.update_pod(ref.caller, ref.key, ref.attempt, body)


# `name` is part of the operation's id in the OpenAPI document.
@router.get(
    "/v1/jobs/{key}", name="get_job", response_model_exclude_none=True, responses=problem_responses(404)
)
async def get(
    ref: JobRefDep, services: ServicesDep, owner: OwnerDep, *, tasks: Annotated[bool, Query()] = True
) -> Job:
    """Return a job with its status; of an array also each task, unless `tasks` is false."""
    return await services.jobs.get(ref.caller, ref.key, ref.attempt, owner, with_tasks=tasks)


@router.delete("/v1/jobs/{key}", response_model_exclude_none=True, responses=problem_responses(404))
async def cancel(
    ref: JobRefDep,
    services: ServicesDep,
    owner: OwnerDep,
    *,
    all_attempts: Annotated[bool, Query(alias="allAttempts")] = False,
    force: Annotated[bool, Query()] = False,
) -> Cancelled:
    """Cancel a job. If it does not exist (404), a later submit of this key and attempt is rejected.

    `allAttempts` cancels every attempt and rejects any further one. A running pod has its grace period to end
    by itself, unless `force` says that it is cancelled at once; a second request may say so.
    """
    attempt = None if all_attempts else ref.attempt
    jobs = await services.jobs.delete(ref.caller, ref.key, attempt, owner, force=force)
    return Cancelled(items=list(jobs))


ACTS = problem_responses(404, 409)


@router.post("/v1/jobs/{key}/hold", response_model_exclude_none=True, responses=ACTS)
async def hold(ref: JobRefDep, services: ServicesDep, owner: OwnerDep) -> Job:
    """Hold a pending job."""
    return await services.jobs.act(ref.caller, ref.key, ref.attempt, JobAction.HOLD, owner=owner)


@router.post("/v1/jobs/{key}/release", response_model_exclude_none=True, responses=ACTS)
async def release(ref: JobRefDep, services: ServicesDep, owner: OwnerDep) -> Job:
    """Release a held job."""
    return await services.jobs.act(ref.caller, ref.key, ref.attempt, JobAction.RELEASE, owner=owner)


@router.post("/v1/jobs/{key}/requeue", response_model_exclude_none=True, responses=ACTS)
async def requeue(
    ref: JobRefDep,
    services: ServicesDep,
    owner: OwnerDep,
    run: Annotated[int | None, Query(ge=1, le=1_000_000)] = None,
) -> Job:
    """Requeue a job: the same job runs again. With `run` only that run: a repeated request is harmless.

    An operator needs the role requeue.
    """
    return await services.jobs.act(ref.caller, ref.key, ref.attempt, JobAction.REQUEUE, run=run, owner=owner)


@router.post("/v1/jobs/{key}/cancel-task", response_model_exclude_none=True, responses=ACTS)
async def cancel_task(
    ref: JobRefDep,
    services: ServicesDep,
    owner: OwnerDep,
    task: Annotated[int, Query(ge=0, le=2**31 - 1, description="its index")],
) -> Job:
    """Cancel one task of a job array; the others go on."""
    act = JobAction.CANCEL_TASK
    return await services.jobs.act(ref.caller, ref.key, ref.attempt, act, task=task, owner=owner)


@router.post("/v1/jobs/{key}/signal", response_model_exclude_none=True, responses=ACTS)
async def send_signal(ref: JobRefDep, services: ServicesDep, signal: SignalName) -> Job:
    """Send a signal to a job's processes."""
    return await services.jobs.act(ref.caller, ref.key, ref.attempt, JobAction.SIGNAL, signal=signal)


@router.get("/v1/jobs/{key}/expected-start", response_model_exclude_none=True, responses=ACTS)
async def expected_start(ref: JobRefDep, services: ServicesDep) -> ExpectedStart:
    """Return when Slurm expects a waiting job of the caller to start. A job that does not wait is a 409."""
    return await services.expected_starts.of_job(ref.caller, ref.key, ref.attempt)


class JobListQuery(RequestModel):
    """A page of the list, or a watch since a revision."""

    watch: bool = False
    since: Annotated[str | None, Field(max_length=64)] = None
    limit: Annotated[int, Field(ge=1, le=5000)] = 500
    next: Annotated[str | None, Field(alias="continue", max_length=512)] = None
    phase: Annotated[tuple[Phase, ...], Field(max_length=64, fail_fast=True)] = ()
    namespace: Annotated[str | None, Field(max_length=253)] = None


@router.get(
    "/v1/jobs",
    response_model=JobList,
    response_model_exclude_none=True,
    responses={
        200: {"content": {NDJSON: {"schema": {"$ref": REFERENCE + WatchEvent.__name__}}}},
        **problem_responses(410),
    },
)
async def list_or_watch(
    caller: CallerDep, services: ServicesDep, query: Annotated[JobListQuery, Query()]
) -> Response | JobList:
    """List jobs page by page, or watch them: one JSON document a line, with bookmarks every 10 s."""
    filters = Filters(phases=frozenset(query.phase) or None, namespace=query.namespace)
    if not query.watch:
        return await services.jobs.list(caller, filters, PageRequest(query.limit, query.next))
    async with AsyncExitStack() as resources:
        resources.enter_context(services.streams.reserve(caller.name))
        events = services.jobs.watch(caller, query.since, filters)
        return ManagedStream(resources.pop_all(), ndjson(events), media_type=NDJSON)
    raise AssertionError


@router.post("/v1/check", response_model_exclude_none=True, responses=problem_responses(408, 413))
async def check(body: JobRequest, caller: CallerDep, services: ServicesDep, *, is_large: IsLargeDep) -> Check:
    """Ask Slurm whether it would accept this job, and when it would start, without submitting it."""
    return await services.jobs.check(caller, body, is_large=is_large)
