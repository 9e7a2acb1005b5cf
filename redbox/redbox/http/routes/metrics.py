"""`/metrics` of red-box itself, and `/metrics/slurm/...` of Slurm by the names that slurmctld has."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from redbox.core.domain import Role
from redbox.core.gauges import MetricFamily
from redbox.core.workload_manager import WorkloadManagerError
from redbox.http.answers.problems import ForbiddenProblem, NotFoundProblem, problem_responses
from redbox.http.middleware.authenticated_route import authenticated_router
from redbox.http.services import CallerDep, ServicesDep
from redbox.http.slurm_exposition import exposition_of, unavailable

router: APIRouter = authenticated_router("metrics")
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
IN_THAT_FORMAT: dict[int | str, dict[str, Any]] = {200: {"content": {EXPOSITION: {}}}}


@router.get("/metrics", response_class=Response, responses=IN_THAT_FORMAT)
async def metrics(caller: CallerDep, services: ServicesDep) -> Response:
    """Return red-box's metrics, to callers of any role: counts and times, without names of users or jobs."""
    del caller
    return Response(services.metrics.exposition(), HTTPStatus.OK, media_type=EXPOSITION)


@router.get(
    "/metrics/slurm/{family}",
    response_class=Response,
    responses={**IN_THAT_FORMAT, **problem_responses(403, 404)},
)
async def slurm_metrics(
    caller: CallerDep,
    services: ServicesDep,
    family: Annotated[MetricFamily, Path(description="What is counted; `users-accounts` has names.")],
) -> Response:
    """Return Slurm's metrics by the names that slurmctld has since 25.11, to callers with the role `metrics`.

    Where Slurm does not answer, or PrivateData hides its data, only `redbox_slurm_metrics_available 0` and a
    comment with the reason are returned: an old number would pass for a new one.
    """
    if not caller.may(Role.METRICS):
        raise ForbiddenProblem(
            "Slurm's metrics count the jobs of all users: they need a rule with the role metrics. "
            "GET /metrics has those of red-box itself"
        )
    if family is MetricFamily.USERS_ACCOUNTS and not services.slurm_metrics.serves_users_accounts:
        raise NotFoundProblem(
            "jobs by user and account are not served: slurm.metrics.users_accounts is false in red-box's "
            "settings"
        )
    try:
        text = exposition_of(family, await services.slurm_metrics.family(family))
    except (WorkloadManagerError, TimeoutError) as fault:
        text = unavailable(family, str(fault) or "Slurm does not answer")
    return Response(text, HTTPStatus.OK, media_type=EXPOSITION)
