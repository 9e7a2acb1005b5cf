"""`/v1/volumes`: folders for Kubernetes' volumes, each made and deleted as its Unix user."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path, Response

from redbox.http.answers.problems import problem_responses
from redbox.http.middleware.authenticated_route import authenticated_router
from redbox.http.services import CallerDep, ServicesDep
from redbox_api.models import KEY_PATTERN, VolumeFolder, VolumeRequest

router = authenticated_router("volumes")
Handle = Annotated[str, Path(pattern=KEY_PATTERN, description="The volume's name: the uid of its claim.")]


@router.put(
    "/v1/volumes/{handle}",
    response_model_exclude_none=True,
    responses={
        201: {"model": VolumeFolder, "description": "Made by this request."},
        **problem_responses(404, 408, 409, 413),
    },
)
async def make_volume(
    handle: Handle, body: VolumeRequest, caller: CallerDep, services: ServicesDep, response: Response
) -> VolumeFolder:
    """Make a folder for the caller's Unix user, or return the existing one. Repeating this is always safe."""
    volume, created = await services.volumes.put(caller, handle, body)
    response.status_code = HTTPStatus.CREATED if created else HTTPStatus.OK
    return volume


@router.get("/v1/volumes/{handle}", response_model_exclude_none=True, responses=problem_responses(404))
async def get_volume(handle: Handle, caller: CallerDep, services: ServicesDep) -> VolumeFolder:
    """Return a volume of the caller; the roles volumes and operator also see those of their cluster."""
    return services.volumes.get(caller, handle)


@router.delete(
    "/v1/volumes/{handle}", response_model_exclude_none=True, responses=problem_responses(404, 409)
)
async def delete_volume(handle: Handle, caller: CallerDep, services: ServicesDep) -> VolumeFolder:
    """Delete a volume's folder with all files in it: by its owner, or by the role volumes of its cluster.

    It is deleted as its own Unix user. A link or another folder in its place is left alone (409). A deletion
    that takes long is answered by 503 and goes on.
    """
    return await services.volumes.delete(caller, handle)
