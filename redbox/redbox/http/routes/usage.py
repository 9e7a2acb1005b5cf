"""`/v1/usage`: what the caller's running jobs use."""

from __future__ import annotations

from fastapi import APIRouter

from redbox.http.answers.problems import ALWAYS, documented
from redbox.http.middleware.authenticated_route import CallersRoute
from redbox.http.services import CallerDep, ServicesDep
from redbox_api.usage import UsageList

router = APIRouter(tags=["jobs"], route_class=CallersRoute, responses=documented(*ALWAYS))


@router.get("/v1/usage", response_model_exclude_none=True)
async def usage(caller: CallerDep, services: ServicesDep) -> UsageList:
    """Tell what the caller's running jobs use, as Slurm measured it within the last half minute or so.

    What Slurm has not measured is not in the list.
    """
    return await services.usage.of_caller(caller)
