"""A red-box that is told what its jobs are: for loads that no Slurm of the bed could hold.

It answers the operator's questions only, over TLS, from a table that a benchmark changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from aiohttp import web

from redbox.server.certificates import CertificateAndKey, issue_server, make_authority
from redbox_api.models import (
    FINAL_PHASES,
    Cluster,
    Job,
    JobList,
    OwnerRef,
    Partition,
    PartitionEvent,
    PartitionList,
    Phase,
    Problem,
    WatchEvent,
    WhoAmI,
)
from redbox_shared.wire import PROBLEMS

PAGE = 500
BOOKMARK_S = 10.0


class ScriptedRedbox:
    """The table, and those who watch it."""

    def __init__(self) -> None:
        self.rows: dict[str, Job] = {}
        self.nonsense = b""  # what a watch says before its next event, and then ends
        self.endpoint = ""
        self.ca = b""
        self.slurm_answers = asyncio.Event()
        self.slurm_answers.set()
        self.stranger: tuple[int, str] | None = None
        """The status and the text that something else answers in its place."""
        self.roles: list[str] | None = ["operator", "reader"]
        """Of who asks; None: it does not say."""
        self.partitions: dict[str, Partition] = {}
        self._partition_changes: list[PartitionEvent] = []
        self._authority: CertificateAndKey | None = None
        self._changes: list[Job] = []
        self._changed = asyncio.Event()

    def put(self, row: Job) -> None:
        """This is how the job is from now on."""
        self.rows[row.key] = row
        self._changes.append(row)
        self._changed.set()
        self._changed = asyncio.Event()

    def put_partition(self, partition: Partition) -> None:
        """This is how the partition is from now on."""
        self.partitions[partition.name] = partition
        self._tell_of_partition("partition", partition)

    def remove_partition(self, name: str) -> None:
        """It is no longer in Slurm's configuration."""
        self._tell_of_partition("gone", self.partitions.pop(name))

    def _tell_of_partition(self, kind: Literal["partition", "gone"], partition: Partition) -> None:
        revision = f"e.{len(self._partition_changes) + 1}"
        self._partition_changes.append(PartitionEvent(type=kind, revision=revision, partition=partition))
        self._changed.set()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def serving(self, folder: Path, *, port: int = 0) -> AsyncIterator[None]:
        """Answer while this lasts, with the same certificate each time."""
        address, now = "127.0.0.1", datetime.now(UTC)
        authority = self._authority = self._authority or make_authority("scripted", now)
        pair = issue_server(authority, ["localhost"], [address], now)
        (folder / "server.crt").write_bytes(pair.certificate)
        (folder / "server.key").write_bytes(pair.key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, address, port, ssl_context=context).start()
        self.endpoint = f"https://{address}:{runner.addresses[0][1]}"
        self.ca = authority.certificate
        try:
            yield
        finally:
            await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._or_a_stranger])
        app.router.add_get("/v1/jobs", self._list_or_watch)
        app.router.add_get("/v1/jobs/{key}", self._get)
        app.router.add_delete("/v1/jobs/{key}", self._cancel)
        app.router.add_get("/v1/cluster", self._cluster)
        app.router.add_get("/v1/whoami", self._whoami)
        app.router.add_get("/v1/partitions", self._partitions)
        return app

    @web.middleware
    async def _or_a_stranger(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self.stranger is None:
            return await handler(request)
        status, text = self.stranger
        return web.Response(status=status, text=text, content_type="text/html")

    async def _list_or_watch(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._watch(request)
        begin = int(request.query.get("continue", 0))
        living = sorted(key for key, row in self.rows.items() if row.phase not in FINAL_PHASES)
        keys = living[begin : begin + PAGE]
        more = str(begin + PAGE) if len(living) > begin + PAGE else None
        items = [self.rows[key] for key in keys]
        return _json(
            JobList(items=items, revision=f"e.{len(self._changes)}", next=more).model_dump_json(by_alias=True)
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        with contextlib.suppress(ConnectionResetError):  # who watched was ended, as it should be
            await self._say_changes(answer, int(request.query.get("since", "e.0").partition(".")[2]))
        return answer

    async def _say_changes(self, answer: web.StreamResponse, place: int) -> None:
        while True:
            changed = self._changed
            if self.nonsense:
                await answer.write(self.nonsense)
                return
            for row in self._changes[place:]:
                place += 1
                await _send(answer, WatchEvent(type="job", revision=f"e.{place}", job=row))
            try:
                async with asyncio.timeout(BOOKMARK_S):
                    await changed.wait()
            except TimeoutError:
                await _send(answer, WatchEvent(type="bookmark", revision=f"e.{place}"))

    async def _get(self, request: web.Request) -> web.Response:
        row = self.rows.get(request.match_info["key"])
        left_out = {"tasks"} if request.query.get("tasks") == "false" else None
        return _json(row.model_dump_json(by_alias=True, exclude=left_out)) if row else _no_such_job()

    async def _cancel(self, request: web.Request) -> web.Response:
        row = self.rows.get(request.match_info["key"])
        if row is None:
            return _no_such_job()
        if row.phase not in FINAL_PHASES:
            row = row.model_copy(update={"phase": Phase.CANCELLED, "state": "CANCELLED"})
            self.put(row)
        return _json(f'{{"items": [{row.model_dump_json(by_alias=True)}]}}')

    async def _cluster(self, _: web.Request) -> web.Response:
        await self.slurm_answers.wait()
        cluster = Cluster(
            name="scripted", workload_manager="none", version="0", redbox_version="0", accounting=True
        )
        return _json(cluster.model_dump_json(by_alias=True))

    async def _whoami(self, _: web.Request) -> web.Response:
        if self.roles is None:
            raise web.HTTPNotFound
        owner = OwnerRef(cluster="kube", namespace="redbox-system", account="redbox-operator")
        whoami = WhoAmI(identity="the operator", owner=owner, user=None, roles=self.roles)
        return _json(whoami.model_dump_json(by_alias=True, exclude_none=True))

    async def _partitions(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._watch_partitions(request)
        listing = PartitionList(
            items=list(self.partitions.values()), revision=f"e.{len(self._partition_changes)}"
        )
        return _json(listing.model_dump_json(by_alias=True))

    async def _watch_partitions(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        place = int(request.query.get("since", "e.0").partition(".")[2])
        with contextlib.suppress(ConnectionResetError):
            while True:
                changed = self._changed
                for event in self._partition_changes[place:]:
                    place += 1
                    await _send(answer, event)
                try:
                    async with asyncio.timeout(BOOKMARK_S):
                        await changed.wait()
                except TimeoutError:
                    await _send(answer, PartitionEvent(type="bookmark", revision=f"e.{place}"))
        return answer


async def _send(answer: web.StreamResponse, event: WatchEvent | PartitionEvent) -> None:
    await answer.write(event.model_dump_json(by_alias=True).encode() + b"\n")


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")


def _no_such_job() -> web.Response:
    problem = Problem(
        type=f"{PROBLEMS}not-found", title="There is no such thing", status=404, detail="no such job"
    )
    text = problem.model_dump_json(by_alias=True)
    return web.Response(text=text, status=404, content_type="application/problem+json")
