"""The API server of the tests over HTTPS, for an operator that runs as a process of its own.

Watches are told of each change, where the one in memory looks through all of its history: so it serves
thousands of objects. Objects are stored as they are, and never changed in place.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from aiohttp import web

from redbox_hosting.api import names
from redbox_kube.api import kinds
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import APPLY, ApiRefused, Object, ResourcePath
from tests.kube.fakes import Change, FakeApiServer
from tests.kube.object_rules import is_selected

KINDS = {
    (kind.group, kind.plural): kind
    for module in (kinds, names)
    for kind in vars(module).values()
    if isinstance(kind, Kind)
}
PAGE, RECENT = 500, 10_000
BOOKMARK_EVERY_S = 60.0
Written = Callable[[ResourcePath, Object], None]


class ManyObjects(FakeApiServer):
    """With watches by kind. `written` is called after each write of the operator's."""

    def __init__(self, written: Written) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        """Requests by verb and kind."""
        self._written = written
        self._watches: dict[tuple[Kind, str], set[asyncio.Queue[Change]]] = {}
        self._recent: dict[tuple[Kind, str], deque[Change]] = {}
        """For a watch that begins after its list."""

    def put(self, where: ResourcePath, body: Object | None = None, **fields: Any) -> Object:
        """With what the API server adds to a new object."""
        found = self.objects.get(where)
        metadata = {**(body or {}).get("metadata", {}), **fields.pop("metadata", {})}
        if found is None:
            metadata = {"creationTimestamp": now(), "generation": 1, **metadata}
        return super().put(where, {**(body or {}), "metadata": metadata}, **fields)

    def _stored(self, where: ResourcePath, body: Object) -> Object:
        """A change of the spec is a new generation."""
        found = self.objects.get(where)
        if found is not None and found.get("spec") != body.get("spec"):
            generation = int(found["metadata"].get("generation", 1)) + 1
            body = {**body, "metadata": {**body["metadata"], "generation": generation}}
        stored = super()._stored(where, body)
        self._written(where, stored)
        return self.objects.get(where, stored)

    async def create(self, where: ResourcePath, body: Object, *, dry_run: bool = False) -> Object | None:
        created = await super().create(where, body, dry_run=dry_run)
        if created is not None:
            place = ResourcePath(where.kind, created["metadata"]["name"], where.namespace)
            self._written(place, created)
        return created

    def _record(self, where: ResourcePath, before: Object | None, after: Object | None) -> None:
        self._version += 1
        change = Change(self._version, where, before, after)
        for namespace in {"", where.namespace}:
            self._recent.setdefault((where.kind, namespace), deque(maxlen=RECENT)).append(change)
            for queue in self._watches.get((where.kind, namespace), ()):
                queue.put_nowait(change)

    def listed(self, where: ResourcePath, selection: Mapping[str, str]) -> list[Object]:
        return [body for at, body in self.objects.items() if is_selected(at, body, where, selection)]

    async def changes(
        self, where: ResourcePath, since: int, selection: Mapping[str, str]
    ) -> AsyncIterator[Object]:
        queue: asyncio.Queue[Change] = asyncio.Queue()
        queues = self._watches.setdefault((where.kind, where.namespace), set())
        for change in self._recent.get((where.kind, where.namespace), ()):
            if change.version > since:
                queue.put_nowait(change)
        queues.add(queue)
        try:
            while True:
                try:
                    async with asyncio.timeout(BOOKMARK_EVERY_S):
                        change = await queue.get()
                except TimeoutError:
                    if (where.kind, where.namespace) not in self._recent:
                        continue  # an API server sends none of a kind that has not changed since its start
                    metadata = {"resourceVersion": str(self._version)}
                    yield {"type": "BOOKMARK", "object": {"kind": where.kind.name, "metadata": metadata}}
                    continue
                if (event := _event(change, where, selection)) is not None:
                    yield event
        finally:
            queues.discard(queue)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _event(change: Change, where: ResourcePath, selection: Mapping[str, str]) -> Object | None:
    was = change.before is not None and is_selected(change.where, change.before, where, selection)
    is_now = change.after is not None and is_selected(change.where, change.after, where, selection)
    if not was and not is_now:
        return None
    body = change.after or change.before or {}
    metadata = {**body["metadata"], "resourceVersion": str(change.version)}
    kind = {"apiVersion": where.kind.api_version, "kind": where.kind.name}
    return {
        "type": "DELETED" if not is_now else "MODIFIED" if was else "ADDED",
        "object": {**kind, **body, "metadata": metadata},
    }


# ------------------------------------------------------------------------------------------------ over HTTP
@asynccontextmanager
async def serving(objects: ManyObjects, tls: ssl.SSLContext) -> AsyncIterator[int]:
    """The port on the loopback."""
    application = web.Application(client_max_size=16 << 20)
    application.router.add_route("*", "/{path:.*}", lambda request: _handle(objects, request))
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls, shutdown_timeout=1)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _handle(objects: ManyObjects, request: web.Request) -> web.StreamResponse:
    where, subresource = _place(request.path)
    is_collection = request.method == "GET" and not where.name
    verb = "WATCH" if is_collection and "watch" in request.query else request.method
    objects.counts[f"{verb} {where.kind}"] += 1
    try:
        if verb == "WATCH":
            return await _watch(objects, request, where)
        if is_collection:
            return _json(_page(objects, request, where))
        answer = await _one(objects, request, where, subresource)
    except ApiRefused as refusal:
        return _refusal(refusal.status, str(refusal))
    if isinstance(answer, HTTPStatus):
        return (
            _refusal(answer, answer.phrase) if answer is not HTTPStatus.OK else _json({"status": "Success"})
        )
    return _json(answer)


async def _one(
    objects: ManyObjects, request: web.Request, where: ResourcePath, subresource: str
) -> Object | HTTPStatus:
    answer: Object | HTTPStatus
    body = json.loads(await request.read() or b"{}")
    required, manager = body.get("preconditions") or {}, request.query.get("fieldManager", "")
    match request.method, request.content_type:
        case "GET", _:
            answer = await objects.get(where) or HTTPStatus.NOT_FOUND
        case "POST", _:
            answer = await objects.create(where, body) or HTTPStatus.CONFLICT
        case "PUT", _:
            answer = await objects.replace(where, body) or HTTPStatus.CONFLICT
        case "DELETE", _:
            uid, version = required.get("uid", ""), required.get("resourceVersion", "")
            answer = await objects.delete(where, uid=uid, version=version)
        case "PATCH", content_type if content_type == APPLY:
            answer = await objects.apply(where, body, field_manager=manager, subresource=subresource)
        case _:
            answer = await objects.merge(where, body, subresource=subresource) or HTTPStatus.CONFLICT
    return answer


def _page(objects: ManyObjects, request: web.Request, where: ResourcePath) -> Object:
    found = objects.listed(where, dict(request.query))
    begins = int(request.query.get("continue") or 0)
    ends = begins + int(request.query.get("limit") or PAGE)
    metadata = {"resourceVersion": str(objects._version)}
    if ends < len(found):
        metadata["continue"] = str(ends)
    kind = {"apiVersion": where.kind.api_version, "kind": f"{where.kind.name}List"}
    return {**kind, "metadata": metadata, "items": found[begins:ends]}


async def _watch(objects: ManyObjects, request: web.Request, where: ResourcePath) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"content-type": "application/json"})
    await answer.prepare(request)
    try:
        async with asyncio.timeout(float(request.query.get("timeoutSeconds", "300"))):
            since = int(request.query.get("resourceVersion") or 0)
            async for event in objects.changes(where, since, dict(request.query)):
                await answer.write(json.dumps(event).encode() + b"\n")
    except (TimeoutError, ConnectionError):
        pass
    return answer


def _place(path: str) -> tuple[ResourcePath, str]:
    first, *rest = path.strip("/").split("/")
    group = "" if first == "api" else rest.pop(0)
    rest.pop(0)  # the version
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:  # else the Namespace itself
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    kind = KINDS.get((group, plural)) or Kind(group, "", plural, plural)
    return ResourcePath(kind, name, namespace), subresource


def _json(body: Object) -> web.Response:
    return web.Response(body=json.dumps(body).encode(), content_type="application/json")


def _refusal(status: int, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": int(status), "message": message}
    return web.Response(status=int(status), body=json.dumps(body).encode(), content_type="application/json")
