"""`/v1/jobs/{key}/files`: what lies in a job's working directory, read and written with its user's rights.

Paths are relative to the working directory, or absolute; how far they reach is the kernel's to decide, since
the agent that opens them is the user.
"""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from redbox.files.service import Download, Part
from redbox.http.answers.problems import ALWAYS, NoSuchRange, NotAccepted, documented
from redbox.http.answers.streaming import HeldStream, begun
from redbox.http.middleware.authenticated_route import CallersRoute
from redbox.http.routes.logs import OCTETS
from redbox.http.services import AskedDep, ServicesDep
from redbox_api.files import FileList

TAR = "application/x-tar"
ONE_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")
router = APIRouter(tags=["files"], route_class=CallersRoute, responses=documented(*ALWAYS))
Globs = Annotated[
    list[Annotated[str, Query(min_length=1, max_length=4096)]], Query(alias="glob", max_length=64)
]


@router.get("/v1/jobs/{key}/files", response_model_exclude_none=True, responses=documented(404))
async def find(asked: AskedDep, services: ServicesDep, glob: Globs) -> FileList:
    """List files by glob; `**` goes into directories."""
    return await services.files.find(asked, glob)


@router.get(
    "/v1/jobs/{key}/archive",
    response_class=Response,
    responses={200: {"content": {TAR: {}}}, **documented(404)},
)
async def archive(asked: AskedDep, services: ServicesDep, glob: Globs) -> Response:
    """Download what the globs find, as a tar with names and modes."""
    async with AsyncExitStack() as held:
        held.enter_context(services.streams.one_more(asked.caller))
        pieces = await begun(held, await services.files.archive(asked, glob))
        return HeldStream(held.pop_all(), pieces, media_type=TAR, has_end=True)
    raise AssertionError


@router.get(
    "/v1/jobs/{key}/files/{path:path}",
    response_class=Response,
    responses={
        200: {"content": {OCTETS: {}}},
        206: {"content": {OCTETS: {}}, "description": "The part that was asked for."},
        **documented(404, 416),
    },
)
async def download(
    asked: AskedDep,
    path: str,
    services: ServicesDep,
    range_: Annotated[str | None, Header(alias="Range", max_length=128)] = None,
    if_range: Annotated[str | None, Header(alias="If-Range", max_length=128)] = None,
) -> Response:
    """Download one file. A download that broke off goes on with a Range, and with its ETag as If-Range."""
    start, end = _range(range_)
    async with AsyncExitStack() as held:
        held.enter_context(services.streams.one_more(asked.caller))
        part = Part(start, end, of=if_range if range_ is not None else None)
        file = await services.files.download(asked, path, part)
        is_part = range_ is not None and if_range in {None, file.tag}
        if is_part and file.start >= file.size:
            raise NoSuchRange(
                f"the file has {file.size} bytes, and the range begins at byte {file.start}",
                headers={"Content-Range": f"bytes */{file.size}"},
            )
        pieces = await begun(held, file.pieces)
        return HeldStream(
            held.pop_all(),
            pieces,
            media_type=OCTETS,
            headers=_headers(file, is_part=is_part),
            status=HTTPStatus.PARTIAL_CONTENT if is_part else HTTPStatus.OK,
            has_end=True,
        )
    raise AssertionError


def _headers(file: Download, *, is_part: bool) -> dict[str, str]:
    length = str(max(0, file.end - file.start))
    headers = {"Accept-Ranges": "bytes", "ETag": file.tag, "Content-Length": length}
    if is_part:
        headers["Content-Range"] = f"bytes {file.start}-{file.end - 1}/{file.size}"
    return headers


def _range(header: str | None) -> tuple[int, int | None]:
    if header is None:
        return 0, None
    found = ONE_RANGE.fullmatch(header.strip())
    if not found:
        raise NotAccepted(f"Range is {header!r}: one range from a first byte on is served, as bytes=100-")
    start, end = int(found[1]), int(found[2]) + 1 if found[2] else None
    if end is not None and end <= start:
        raise NotAccepted(f"Range is {header!r}: it ends before it begins")
    return start, end


@router.put(
    "/v1/jobs/{key}/files/{path:path}",
    status_code=HTTPStatus.CREATED,
    responses=documented(404, 408),
    openapi_extra={"requestBody": {"content": {OCTETS: {}}}},
)
async def upload(
    asked: AskedDep,
    path: str,
    request: Request,
    services: ServicesDep,
    mode: Annotated[str, Query(pattern=r"^0?[0-7]{3}$", description="octal")] = "644",
) -> dict[str, int]:
    """Stage a file in: it appears whole under its name, or not at all."""
    with services.streams.one_more(asked.caller):
        written = await services.files.upload(asked, path, int(mode, 8), request.stream())
    return {"size": written}
