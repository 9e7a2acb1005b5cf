"""`/v1/jobs/{key}/files`: files in a job's working directory, read and written with its user's rights.

Paths are relative to the working directory, or absolute. The kernel checks access, since the agent that opens
them runs as the user.
"""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Annotated

from fastapi import Header, Query, Request, Response

from redbox.files.service import ByteRange, Download
from redbox.http.answers.problems import RangeNotSatisfiableProblem, UnprocessableProblem, problem_responses
from redbox.http.answers.streaming import ManagedStream, with_first_piece
from redbox.http.middleware.authenticated_route import authenticated_router
from redbox.http.routes.logs import OCTETS
from redbox.http.services import JobRefDep, ServicesDep
from redbox_api.models import FileList

TAR = "application/x-tar"
SINGLE_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")
router = authenticated_router("files")
Globs = Annotated[
    list[Annotated[str, Query(min_length=1, max_length=4096)]], Query(alias="glob", max_length=64)
]


@router.get("/v1/jobs/{key}/files", response_model_exclude_none=True, responses=problem_responses(404))
async def find(ref: JobRefDep, services: ServicesDep, glob: Globs) -> FileList:
    """List files by glob; `**` matches directories recursively."""
    return await services.files.find(ref, glob)


@router.get(
    "/v1/jobs/{key}/archive",
    response_class=Response,
    responses={200: {"content": {TAR: {}}}, **problem_responses(404)},
)
async def archive(ref: JobRefDep, services: ServicesDep, glob: Globs) -> Response:
    """Download the files that the globs match, as a tar with names and modes."""
    async with AsyncExitStack() as resources:
        resources.enter_context(services.streams.reserve(ref.caller.name))
        pieces = await with_first_piece(resources, await services.files.archive(ref, glob))
        return ManagedStream(resources.pop_all(), pieces, media_type=TAR, has_end=True)
    raise AssertionError


@router.get(
    "/v1/jobs/{key}/files/{path:path}",
    response_class=Response,
    responses={
        200: {"content": {OCTETS: {}}},
        206: {"content": {OCTETS: {}}, "description": "The requested range."},
        **problem_responses(404, 416),
    },
)
async def download(
    ref: JobRefDep,
    path: str,
    services: ServicesDep,
    range_: Annotated[str | None, Header(alias="Range", max_length=128)] = None,
    if_range: Annotated[str | None, Header(alias="If-Range", max_length=128)] = None,
) -> Response:
    """Download one file. To resume an aborted download, send a Range, and its ETag as If-Range."""
    start, end = _parse_range(range_)
    async with AsyncExitStack() as resources:
        resources.enter_context(services.streams.reserve(ref.caller.name))
        byte_range = ByteRange(start, end, if_tag=if_range if range_ is not None else None)
        file = await services.files.download(ref, path, byte_range)
        is_partial = range_ is not None and if_range in {None, file.tag}
        if is_partial and file.start >= file.size:
            raise RangeNotSatisfiableProblem(
                f"the file has {file.size} bytes, and the range begins at byte {file.start}",
                headers={"Content-Range": f"bytes */{file.size}"},
            )
        pieces = await with_first_piece(resources, file.pieces)
        return ManagedStream(
            resources.pop_all(),
            pieces,
            media_type=OCTETS,
            headers=_headers(file, is_partial=is_partial),
            status=HTTPStatus.PARTIAL_CONTENT if is_partial else HTTPStatus.OK,
            has_end=True,
        )
    raise AssertionError


def _headers(file: Download, *, is_partial: bool) -> dict[str, str]:
    length = str(max(0, file.end - file.start))
    headers = {"Accept-Ranges": "bytes", "ETag": file.tag, "Content-Length": length}
    if is_partial:
        headers["Content-Range"] = f"bytes {file.start}-{file.end - 1}/{file.size}"
    return headers


def _parse_range(header: str | None) -> tuple[int, int | None]:
    if header is None:
        return 0, None
    match = SINGLE_RANGE.fullmatch(header.strip())
    if not match:
        raise UnprocessableProblem(
            f"Range is {header!r}: only a single range with a first byte is supported, as bytes=100-"
        )
    start, end = int(match[1]), int(match[2]) + 1 if match[2] else None
    if end is not None and end <= start:
        raise UnprocessableProblem(f"Range is {header!r}: it ends before it begins")
    return start, end


@router.put(
    "/v1/jobs/{key}/files/{path:path}",
    status_code=HTTPStatus.CREATED,
    responses=problem_responses(404, 408),
    openapi_extra={"requestBody": {"content": {OCTETS: {}}}},
)
async def upload(
    ref: JobRefDep,
    path: str,
    request: Request,
    services: ServicesDep,
    mode: Annotated[str, Query(pattern=r"^0?[0-7]{3}$", description="octal")] = "644",
) -> dict[str, int]:
    """Upload a file: it appears whole under its name, or not at all."""
    with services.streams.reserve(ref.caller.name):
        written = await services.files.upload(ref, path, int(mode, 8), request.stream())
    return {"size": written}
