"""`/v1/usage`: resource usage of the caller's jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from redbox.http.middleware.authenticated_route import authenticated_router
from redbox.http.services import CallerDep, ServicesDep
from redbox_api.models import EndedUsageList, UsageList

router = authenticated_router("jobs")

MOST_JOBS = 50
Jobs = Annotated[
    list[Annotated[str, Query(pattern=r"^[A-Za-z0-9-]{1,64}\.[1-9][0-9]{0,8}$")]],
    Query(alias="job", min_length=1, max_length=MOST_JOBS, description="key.attempt of each job"),
]


@router.get("/v1/usage", response_model_exclude_none=True)
async def usage(caller: CallerDep, services: ServicesDep) -> UsageList:
    """Return the usage of the caller's running jobs, as Slurm measured it within the last half minute or so.

    Jobs that Slurm has not measured are not in the list.
    """
    return await services.usage.of_caller(caller)


@router.get("/v1/usage/ended", name="ended_usage", response_model_exclude_none=True)
async def ended_usage(caller: CallerDep, services: ServicesDep, jobs: Jobs) -> EndedUsageList:
    """Return what these of the caller's jobs used of what they had, once Slurm's accounting has their end.

    Jobs that are unknown, not the caller's, or not in the accounting as ended are not in the list.
    """
    pairs = [(key, int(attempt)) for key, _, attempt in (job.rpartition(".") for job in jobs)]
    return await services.usage.of_ended(caller, pairs)
