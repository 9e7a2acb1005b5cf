"""`/v1/usage`: resource usage of the caller's running jobs."""

from __future__ import annotations

from redbox.http.middleware.authenticated_route import authenticated_router
from redbox.http.services import CallerDep, ServicesDep
from redbox_api.models import UsageList

router = authenticated_router("jobs")


@router.get("/v1/usage", response_model_exclude_none=True)
async def usage(caller: CallerDep, services: ServicesDep) -> UsageList:
    """Return the usage of the caller's running jobs, as Slurm measured it within the last half minute or so.

    Jobs that Slurm has not measured are not in the list.
    """
    return await services.usage.of_caller(caller)
