"""A red-box that has what it is told to have: many partitions, and a running job for each key it is told of.

Slurm on two cores cannot hold ten thousand running jobs on two hundred partitions; what is measured with this
is resourced alone. It counts the jobs that somebody submits, which must be none.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web
from pydantic import BaseModel

from redbox_api.models import (
    Amounts,
    Cluster,
    Job,
    JobList,
    OwnerRef,
    Partition,
    PartitionEvent,
    PartitionList,
    Phase,
    WatchEvent,
)
from redbox_api.pod_report import ContainerReport, ContainerState, PodEvent, PodReport, Running

REVISION = "1.1"
BOOKMARK_EVERY_S = 10.0
STARTED_AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
CONTAINER = "main"
REPORT = PodReport(
    at=STARTED_AT,
    settled=True,
    node_name="n1",
    host_ip="10.77.0.12",
    containers=[
        ContainerReport(
            name=CONTAINER,
            state=ContainerState(running=Running(started_at=STARTED_AT)),
            ready=True,
            started=True,
        )
    ],
    events=[
        PodEvent(number=number, reason=reason, message=reason, container=CONTAINER, at=STARTED_AT)
        for number, reason in enumerate(("Pulled", "Created", "Started"), start=1)
    ],
)
"""Of a pod whose one container runs."""


class ManyPartitions:
    """`keys` are those of the jobs, each with so many attempts."""

    def __init__(self, partitions: int, keys: list[str], attempts: int, *, of_pods: bool = False) -> None:
        amounts = Amounts(nodes=4, cpus=128, mem_mb=512_000)
        self.partitions = [
            Partition(name=f"p{number:03}", state="UP", total=amounts, free=amounts)
            for number in range(partitions)
        ]
        self.of_pods = of_pods
        self.jobs = [self._job(key, attempt + 1) for key in keys for attempt in range(attempts)]
        self.submits = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/cluster", self._cluster)
        app.router.add_get("/v1/partitions", self._list_partitions)
        app.router.add_get("/v1/jobs", self._list_jobs)
        app.router.add_get("/v1/jobs/{key}", self._one_job)
        app.router.add_put("/v1/jobs/{key}", self._submit)
        app.router.add_get("/submits", self._count)
        return app

    async def _cluster(self, _: web.Request) -> web.Response:
        return _said(
            Cluster(
                name="scale", workload_manager="slurm", version="24.11", redbox_version="0", accounting=True
            )
        )

    async def _list_partitions(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await _stream(request, PartitionEvent(type="bookmark", revision=REVISION))
        return _said(PartitionList(items=self.partitions, revision=REVISION))

    async def _list_jobs(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await _stream(request, WatchEvent(type="bookmark", revision=REVISION))
        start, size = int(request.query.get("continue", 0)), int(request.query.get("limit", 500))
        more = str(start + size) if start + size < len(self.jobs) else None
        return _said(JobList(items=self.jobs[start : start + size], revision=REVISION, next=more))

    async def _one_job(self, request: web.Request) -> web.Response:
        return _said(self._job(request.match_info["key"], int(request.query.get("attempt", 1))))

    async def _submit(self, _: web.Request) -> web.Response:
        self.submits += 1
        return web.Response(status=503)

    async def _count(self, _: web.Request) -> web.Response:
        return web.json_response(self.submits)

    def _job(self, key: str, attempt: int) -> Job:
        job = _job(key, attempt)
        return job.model_copy(update={"is_pod": True, "pod": REPORT}) if self.of_pods else job


def _job(key: str, attempt: int) -> Job:
    return Job(
        key=key,
        attempt=attempt,
        owner=OwnerRef(cluster="bed", namespace="alice", account="default"),
        user="alice",
        phase=Phase.RUNNING,
        state="RUNNING",
        job_id=str(attempt),
        name="scale",
        partition="p000",
        nodes=["n1"],
        submitted_at=STARTED_AT,
        started_at=STARTED_AT,
        working_directory="/home/alice/redbox/alice/scale",
    )


def _said(answer: BaseModel) -> web.Response:
    text = answer.model_dump_json(by_alias=True, exclude_none=True)
    return web.Response(text=text, content_type="application/json")


async def _stream(request: web.Request, bookmark: BaseModel) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await answer.prepare(request)
    with contextlib.suppress(ConnectionResetError):  # who watched was killed, as it should be
        async for line in _bookmarks(bookmark):
            await answer.write(line)
    return answer


async def _bookmarks(bookmark: BaseModel) -> AsyncIterator[bytes]:
    while True:
        yield bookmark.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"
        await asyncio.sleep(BOOKMARK_EVERY_S)


def main(settings: Path) -> None:
    """Serve as the file says until killed."""
    said = json.loads(settings.read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(said["certificate"])
    redbox = ManyPartitions(said["partitions"], said["keys"], said["attempts"], of_pods=said["of_pods"])
    web.run_app(redbox.app(), host=said["address"], port=said["port"], ssl_context=context, print=None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
