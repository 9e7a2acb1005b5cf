"""One API server in memory for all tests.

It stores JSON objects by their ResourcePath, counts resource versions, keeps objects with finalizers until
the last one is lifted, serves lists by page and watches from a version, and fails where a test says so:

    api = FakeApiServer()
    api.put(ResourcePath(kinds.POD, "cow-job", "farm"), {"spec": {}})
    api.fail(ApiUnreachable("the API server does not answer"), verb="get", kind="Pod", times=1)
    Writer(api.client, metrics)
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, NamedTuple, Self, Unpack, cast

from redbox_kube.api import kinds
from redbox_kube.api.metadata_list import ObjectMetadata
from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, PodRef, ResourcePath
from redbox_kube.api.request_options import DeleteOptions
from tests.kube.object_api import ObjectApi
from tests.kube.object_rules import (
    check_immutable,
    is_selected,
    json_patched,
    merge_patched,
    with_conditions_of_others,
    withdrawal,
)

FIELD_MANAGER = "test"


class Request(NamedTuple):
    """One request: verb, and the object or the collection."""

    verb: str
    where: ResourcePath

    def __str__(self) -> str:
        return f"{self.verb} {self.where.kind}"


@dataclass
class Fault:
    """Requests that match fail with `error`, at most `times` times. An empty field matches everything."""

    error: Exception
    verb: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    times: int | None = None

    def matches(self, request: Request, name: str) -> bool:
        where = request.where
        found = (request.verb, where.kind.name, name, where.namespace)
        wanted = (self.verb, self.kind, self.name, self.namespace)
        return self.times != 0 and all(want in {"", value} for want, value in zip(wanted, found, strict=True))


class Change(NamedTuple):
    """An entry of the history that watches read."""

    version: int
    where: ResourcePath
    before: Object | None
    after: Object | None


class FakeApiServer:
    """The API server; `client` is the same for those that want an `ObjectClient`."""

    def __init__(self, *, page_size: int = 500) -> None:
        self.field_manager = FIELD_MANAGER
        self.objects: dict[ResourcePath, Object] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.unserved: set[str] = set()
        """Kinds and API versions that this API server does not have."""
        self.before_next_write: Callable[[], object] | None = None
        """What somebody else changes just before the next write arrives."""
        self.applied: list[tuple[ResourcePath, str, str, Object]] = []
        self.tokens_of: list[PodRef | None] = []  # which pod each was bound to
        self.token_lifetimes: list[int] = []
        """Of each server-side apply: where, field manager, subresource, body."""
        self.impersonated: list[tuple[str, str]] = []
        self.closed = False
        self._page_size = page_size
        self._version = 10
        self._history: list[Change] = []
        self._oldest = 0
        self._changed = asyncio.Event()
        self._managed: dict[tuple[ResourcePath, str, str], Object] = {}

    @property
    def client(self) -> ObjectClient:
        return cast("ObjectClient", self)

    # -- for tests

    def put(self, where: ResourcePath, body: Object | None = None, **fields: Any) -> Object:
        """Store an object in place of what is there, as somebody else's write.

        A new object keeps the resourceVersion that it names.
        """
        body = {**(body or {}), **fields}
        metadata = {"name": where.name, "uid": f"uid-{self._version + 1}"}
        if where.namespace:
            metadata["namespace"] = where.namespace
        return self._store(where, {**body, "metadata": {**metadata, **body.get("metadata", {})}})

    def remove(self, where: ResourcePath) -> None:
        """Remove an object, finalizers or not."""
        before = self.objects.pop(where)
        self._record(where, before, None)

    def fail(self, error: Exception, **which: Any) -> Fault:
        """Inject a fault; see `Fault` for what can be said of it."""
        fault = Fault(error, **which)
        self.faults.append(fault)
        return fault

    def recover(self) -> None:
        """Withdraw all faults."""
        self.faults.clear()

    def forget_history(self) -> None:
        """Watches from a version before now are refused with 410, as after a compaction of etcd."""
        self._oldest = self._version

    def of_kind(self, kind: str) -> list[Object]:
        return [body for where, body in self.objects.items() if where.kind.name == kind]

    def names(self, kind: str) -> list[str]:
        return sorted(where.name for where in self.objects if where.kind.name == kind)

    @property
    def events(self) -> list[Object]:
        return self.of_kind("Event")

    @property
    def writes(self) -> int:
        """Requests that write, but for events."""
        reads = {"get", "list", "watch", "token"}
        return sum(verb not in reads and where.kind is not kinds.EVENT for verb, where in self.requests)

    @property
    def asked(self) -> list[str]:
        """Verb and kind of each request."""
        return [str(request) for request in self.requests]

    # -- as ObjectClient

    def impersonating(self, user: str, group: str) -> Self:
        self.impersonated.append((user, group))
        return self

    async def close(self) -> None:
        self.closed = True

    async def server_version(self) -> str:
        return "v1.34.4"

    async def get(self, where: ResourcePath) -> Object | None:
        self._receive("get", where)
        found = self.objects.get(where)
        return None if found is None else _copied(found)

    async def create(self, where: ResourcePath, body: Object, *, dry_run: bool = False) -> Object | None:
        metadata = body.get("metadata", {})
        place = _place(where, metadata)
        self._receive("create", where, place.name)
        if place in self.objects:
            return None
        return _copied(body if dry_run else self.put(place, _copied(body)))

    async def replace(self, where: ResourcePath, body: Object) -> Object | None:
        self._receive("replace", where)
        found = self._found(where)
        if body["metadata"].get("resourceVersion", found["metadata"]["resourceVersion"]) != _version(found):
            return None
        uid = {"uid": found["metadata"]["uid"]}
        return self._stored(where, {**_copied(body), "metadata": {**_copied(body["metadata"]), **uid}})

    async def apply_status(self, where: ResourcePath, status: Object, *, uid: str = "") -> Object:
        self._receive("status", where)
        found = self._found(where)
        if uid not in {"", found["metadata"]["uid"]}:
            raise ApiRefused(HTTPStatus.CONFLICT, "uid mismatch")
        return self._stored(where, {**found, "status": _copied(status)})

    async def set_finalizers(
        self, where: ResourcePath, finalizers: list[str], *, resource_version: str
    ) -> Object | None:
        self._receive("finalizers", where)
        found = self.objects.get(where)
        if found is None or _version(found) != resource_version:
            return None
        return self._stored(where, {**found, "metadata": {**found["metadata"], "finalizers": finalizers}})

    async def token_for(
        self, namespace: str, account: str, audience: str, *, seconds: int, pod: PodRef | None = None
    ) -> str:
        self.tokens_of.append(pod)
        self.token_lifetimes.append(seconds)
        self._receive("token", ResourcePath(kinds.SERVICE_ACCOUNT, account, namespace))
        return f"token of {namespace}/{account} for {audience}"

    async def apply(
        self, where: ResourcePath, body: Object, *, field_manager: str = "", subresource: str = ""
    ) -> Object:
        self._receive("apply", where)
        manager = field_manager or FIELD_MANAGER
        self.applied.append((where, manager, subresource, _copied(body)))
        found = self.objects.get(where)
        if found is None and subresource:
            raise ApiRefused(HTTPStatus.NOT_FOUND, f"{where.kind} {where.name} not found")
        uid = body.get("metadata", {}).get("uid")
        if uid and (found is None or uid != found["metadata"]["uid"]):
            raise ApiRefused(HTTPStatus.CONFLICT, f"uid mismatch: {uid}")
        found = found or self.put(where)
        before = self._managed.get((where, manager, subresource), {})
        self._managed[where, manager, subresource] = _copied(body)
        if subresource:
            body = with_conditions_of_others(found, body)
        after = merge_patched(found, merge_patched(withdrawal(before, body), body))
        check_immutable(where, found, after)
        return self._stored(where, after)

    async def merge(self, where: ResourcePath, body: Object, *, subresource: str = "") -> Object | None:
        self._receive("merge", where)
        found = self.objects.get(where)
        wanted = body.get("metadata", {}).get("resourceVersion")
        uid = body.get("metadata", {}).get("uid")
        if (
            found is None
            or wanted not in {None, _version(found)}
            or uid not in {None, found["metadata"]["uid"]}
        ):
            return None
        if subresource == "status":
            body = {"status": body["status"]}
        return self._stored(where, merge_patched(found, _copied(body)))

    async def json_patch(
        self, where: ResourcePath, operations: list[Object], *, dry_run: bool = False
    ) -> Object | None:
        self._receive("patch", where)
        if where not in self.objects:
            return None
        patched = json_patched(self.objects[where], operations)
        return patched if dry_run else self._stored(where, patched)

    async def delete(
        self, where: ResourcePath, *, uid: str = "", version: str = "", **options: Unpack[DeleteOptions]
    ) -> HTTPStatus:
        del options
        self._receive("delete", where)
        found = self.objects.get(where)
        if found is None:
            return HTTPStatus.NOT_FOUND
        if uid not in {"", found["metadata"]["uid"]} or version not in {"", _version(found)}:
            return HTTPStatus.CONFLICT
        if found["metadata"].get("finalizers"):
            at = {"deletionTimestamp": "2026-01-01T00:00:00Z", **found["metadata"]}
            self._store(where, {**found, "metadata": at})
        else:
            self.remove(where)
        return HTTPStatus.OK

    async def pages(
        self, where: ResourcePath, selection: Mapping[str, str] | None = None, *, metadata: bool = False
    ) -> AsyncIterator[tuple[list[Object], str]]:
        self._receive("list", where)
        version = str(self._version)
        found = [
            _copied(body) for at, body in self.objects.items() if is_selected(at, body, where, selection)
        ]
        for start in range(0, max(len(found), 1), self._page_size):
            page = found[start : start + self._page_size]
            yield [{"metadata": body["metadata"]} for body in page] if metadata else page, version

    async def watch(
        self,
        where: ResourcePath,
        since: str,
        selection: Mapping[str, str] | None = None,
        *,
        metadata: bool = False,
    ) -> AsyncIterator[Object]:
        self._receive("watch", where)
        version = int(since)
        while True:
            if version < self._oldest:
                yield {"type": "ERROR", "object": {"code": HTTPStatus.GONE, "message": "too old"}}
                return
            changed = self._changed
            for change in [change for change in self._history if change.version > version]:
                version = change.version
                if (event := _event(change, where, selection)) is not None:
                    body = {"metadata": event["object"]["metadata"]} if metadata else event["object"]
                    yield {**event, "object": body}
            await changed.wait()

    async def list_all(self, where: ResourcePath) -> AsyncIterator[Object]:
        async for page, _ in self.pages(where):
            for item in page:
                yield item

    async def list_metadata(
        self, where: ResourcePath, selection: Mapping[str, str] | None = None
    ) -> AsyncIterator[ObjectMetadata]:
        async for page, _ in self.pages(where, selection):
            for item in page:
                yield ObjectMetadata.model_validate(item["metadata"])

    # -- storage

    def _receive(self, verb: str, where: ResourcePath, name: str = "") -> None:
        request = Request(verb, where)
        self.requests.append(request)
        for fault in self.faults:
            if fault.matches(request, where.name or name):
                fault.times = None if fault.times is None else fault.times - 1
                raise fault.error
        if self.unserved & {where.kind.name, where.kind.api_version}:
            raise ApiRefused(HTTPStatus.NOT_FOUND, "404 page not found")
        if verb not in {"get", "list", "watch", "token"} and where.kind is not kinds.EVENT:
            change, self.before_next_write = self.before_next_write, None
            if change:
                change()

    def _found(self, where: ResourcePath) -> Object:
        if where not in self.objects:
            raise ApiRefused(HTTPStatus.NOT_FOUND, f"{where.kind} {where.name} not found")
        return self.objects[where]

    def _stored(self, where: ResourcePath, body: Object) -> Object:
        """The object as it is after a write; one that was being deleted goes with its last finalizer.

        A pod with a grace period stays until its node deletes it.
        """
        stored = self._store(where, body)
        metadata = stored["metadata"]
        stays = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and not stays:
            self.remove(where)
        return _copied(stored)

    def _store(self, where: ResourcePath, body: Object) -> Object:
        before = self.objects.get(where)
        version = str(self._version + 1)
        if before is None:
            version = body["metadata"].get("resourceVersion") or version
        stored = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        self.objects[where] = stored
        self._record(where, before, stored)
        return stored

    def _record(self, where: ResourcePath, before: Object | None, after: Object | None) -> None:
        self._version += 1
        after = None if after is None else _copied(after)
        self._history.append(Change(self._version, where, before, after))
        self._changed.set()
        self._changed = asyncio.Event()


# What a test may hand out in place of the other: mypy compares both with the Protocol.
_CONFORMING: tuple[type[ObjectApi], ...] = (ObjectClient, FakeApiServer)


def _copied(body: Object) -> Object:
    return copy.deepcopy(body)


def _version(body: Object) -> str:
    return str(body["metadata"]["resourceVersion"])


def _place(where: ResourcePath, metadata: Object) -> ResourcePath:
    return replace(where, name=metadata["name"], namespace=metadata.get("namespace", where.namespace))


def _event(change: Change, where: ResourcePath, selection: Mapping[str, str] | None) -> Object | None:
    was = change.before is not None and is_selected(change.where, change.before, where, selection)
    is_now = change.after is not None and is_selected(change.where, change.after, where, selection)
    if not was and not is_now:
        return None
    body = _copied(change.after or change.before or {})
    body["metadata"]["resourceVersion"] = str(change.version)
    return {"type": "DELETED" if not is_now else "MODIFIED" if was else "ADDED", "object": body}
