"""A client for objects of the API server as plain JSON, each request with a deadline.

`kubernetes.aio` provides connection, configuration and authentication. Its typed models are not used, because
the controllers build and compare JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, NamedTuple, Self, TypeVar, Unpack
from urllib.parse import quote, urlencode

import aiohttp

from redbox_api.bodies import lines
from redbox_api.limits.answer_limits import AnswerLimits
from redbox_kube.api.connection import connected_client
from redbox_kube.api.decoding import UNREADABLE, ListPage, as_event, as_object, as_page, error_message
from redbox_kube.api.kinds import Kind
from redbox_kube.api.kubernetes_client import client, config
from redbox_kube.api.metadata_list import MetadataPage, ObjectMetadata, page_of
from redbox_kube.api.request_options import DeleteOptions, RequestOptions
from redbox_shared.printable import printable_texts

Object = dict[str, Any]
ReadT = TypeVar("ReadT")
PageT = TypeVar("PageT", ListPage, MetadataPage)
DEADLINE_S = 30.0
WATCH_S = 300
WATCH_SILENT_S = 100.0
"""Then a watch ends. Bookmarks come every minute, but of a kind that never changed since the start none."""
PAGE = 500
OF_EVENTS = AnswerLimits()
MOST_BYTES = 16 << 20  # of a response: a page has fewer objects where tenants have made large ones
APPLY = "application/apply-patch+yaml"
JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
DRY_RUN = {"dryRun": "All"}  # all is checked, admission policies among it, and nothing is stored
ABSENT = frozenset({HTTPStatus.NOT_FOUND})
CONFLICTING = frozenset({HTTPStatus.CONFLICT})
CONNECTION_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)


class ApiError(Exception):
    """Base of errors between the controllers and the API server.

    ApiError
    ├── ApiUnreachable      no or half a response: a write may have been applied
    │   └── ApiUnreadable   a response that cannot be decoded
    ├── ApiTooLong          a response that would fill the memory
    └── ApiRefused          an error status of the API server
    """


class ApiUnreachable(ApiError):
    """No response, or half of one: the result of the request is unknown."""


class ApiUnreadable(ApiUnreachable):
    """A response that cannot be decoded. A watch has to list again to get past it."""


class ApiTooLong(ApiError):
    """A response of more bytes than are read."""


class ApiRefused(ApiError):
    """An error response of the API server, with its status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ResourcePath:
    """The path of an object, or without a name of a collection."""

    kind: Kind
    name: str = ""
    namespace: str = ""

    def all(self) -> ResourcePath:
        """The collection of this object."""
        return replace(self, name="")

    def path(self, subresource: str = "") -> str:
        root = f"/apis/{self.kind.api_version}" if self.kind.group else f"/api/{self.kind.version}"
        namespace = f"/namespaces/{_segment(self.namespace)}" if self.namespace else ""
        parts = (self.kind.plural, _segment(self.name) if self.name else "", subresource)
        return f"{root}{namespace}/{'/'.join(filter(None, parts))}"


class PodRef(NamedTuple):
    """A pod, by name and uid."""

    name: str
    uid: str


class ObjectClient:
    """The API server, with requests as the controller's own service account."""

    def __init__(self, api: client.ApiClient, field_manager: str) -> None:
        self._api = api
        self.field_manager = field_manager

    @classmethod
    async def connect(cls, field_manager: str) -> Self:
        """Use the pod's service account, or the kubeconfig outside of a cluster."""
        try:
            return cls(await connected_client(), field_manager)
        except config.ConfigException as error:
            raise ApiUnreachable(f"no Kubernetes cluster is configured, set KUBECONFIG: {error}") from error

    def impersonating(self, user: str, group: str) -> ObjectClient:
        """A client that impersonates another user; closed separately."""
        api = client.ApiClient(self._api.configuration)
        api.set_default_header("Impersonate-User", user)  # type: ignore[no-untyped-call]
        api.set_default_header("Impersonate-Group", group)  # type: ignore[no-untyped-call]
        return ObjectClient(api, self.field_manager)

    async def close(self) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]

    async def server_version(self) -> str:
        """The API server's version, as v1.34.4."""
        return _field(await self._ask("GET", "/version"), "gitVersion")

    async def get(self, where: ResourcePath) -> Object | None:
        """The object, or None if it does not exist."""
        return await self._ask_unless(ABSENT, "GET", where)

    async def create(self, where: ResourcePath, body: Object, *, dry_run: bool = False) -> Object | None:
        """Create; None if the name exists already."""
        query = DRY_RUN if dry_run else {}
        return await self._ask_unless(CONFLICTING, "POST", where, query=query, body=body)

    async def replace(self, where: ResourcePath, body: Object) -> Object | None:
        """Replace the object; None if its resourceVersion is not the newest."""
        return await self._ask_unless(CONFLICTING, "PUT", where, body=body)

    async def apply_status(self, where: ResourcePath, status: Object, *, uid: str = "") -> Object:
        """Apply the whole status as its only owner, its texts printable; `uid`: only of this object."""
        given = {"namespace": where.namespace, "uid": uid}
        metadata = {name: value for name, value in given.items() if value}
        body = {"metadata": metadata, "status": printable_texts(status, lines=True)}
        return await self.apply(where, body, subresource="status")

    async def set_finalizers(
        self, where: ResourcePath, finalizers: list[str], *, resource_version: str
    ) -> Object | None:
        """Replace the finalizers of exactly this version; None if it has changed or is gone."""
        body = {"metadata": {"finalizers": finalizers, "resourceVersion": resource_version}}
        return await self._ask_unless(ABSENT | CONFLICTING, "PATCH", where, body=body, content_type=MERGE)

    async def token_for(
        self, namespace: str, account: str, audience: str, *, seconds: int, pod: PodRef | None = None
    ) -> str:
        """A token of a service account (TokenRequest), optionally bound to a pod.

        For one audience; an empty one is the API server's own.
        """
        path = f"/api/v1/namespaces/{_segment(namespace)}/serviceaccounts/{_segment(account)}/token"
        spec: Object = {"audiences": [audience] if audience else [], "expirationSeconds": seconds}
        if pod:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        answer = await self._ask("POST", path, body={**kind, "spec": spec})
        return _field(answer, "status", "token")

    async def apply(
        self, where: ResourcePath, body: Object, *, field_manager: str = "", subresource: str = ""
    ) -> Object:
        """Apply all fields of this manager (server-side apply); fields that it omits are withdrawn."""
        query = {"fieldManager": field_manager or self.field_manager, "force": "true"}
        named: Object = {"apiVersion": where.kind.api_version, "kind": where.kind.name, **body}
        named["metadata"] = {"name": where.name, **body.get("metadata", {})}
        return await self._ask("PATCH", where.path(subresource), query=query, body=named, content_type=APPLY)

    async def merge(self, where: ResourcePath, body: Object, *, subresource: str = "") -> Object | None:
        """Merge these fields, null removes one; None if the object is gone or has another version."""
        query = {"fieldManager": self.field_manager}
        return await self._ask_unless(
            ABSENT | CONFLICTING, "PATCH", where, subresource, query=query, body=body, content_type=MERGE
        )

    async def json_patch(
        self, where: ResourcePath, operations: list[Object], *, dry_run: bool = False
    ) -> Object | None:
        """Apply all operations or none, as where a `test` among them fails. None if the object is gone."""
        query = {"fieldManager": self.field_manager, **(DRY_RUN if dry_run else {})}
        return await self._ask_unless(
            ABSENT | CONFLICTING, "PATCH", where, query=query, body=operations, content_type=JSON_PATCH
        )

    async def delete(
        self,
        where: ResourcePath,
        *,
        uid: str = "",
        version: str = "",
        **options: Unpack[DeleteOptions],
    ) -> HTTPStatus:
        """OK; NOT_FOUND if it was gone; CONFLICT if it has another uid or resourceVersion than these."""
        required = {name: value for name, value in (("uid", uid), ("resourceVersion", version)) if value}
        body: Object = {**options, **({"preconditions": required} if required else {})}
        try:
            await self._ask("DELETE", where.path(), body=body)
        except ApiRefused as refusal:
            if refusal.status not in ABSENT | CONFLICTING:
                raise
            return HTTPStatus(refusal.status)
        return HTTPStatus.OK

    async def pages(
        self, where: ResourcePath, selection: Mapping[str, str] | None = None, *, metadata: bool = False
    ) -> AsyncIterator[tuple[list[Object], str]]:
        """All selected objects, or their metadata alone, and the resourceVersion to start a watch from."""
        accept = METADATA.format("List") if metadata else JSON
        async for page in self._read_pages(where, selection, as_page, accept):
            yield page.items, page.version
            del page

    async def watch(
        self,
        where: ResourcePath,
        since: str,
        selection: Mapping[str, str] | None = None,
        *,
        metadata: bool = False,
    ) -> AsyncIterator[Object]:
        """Events after a resourceVersion, with bookmarks; ends after some minutes, or a silence."""
        query = {
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
            **(selection or {}),
        }
        timeout = aiohttp.ClientTimeout(connect=DEADLINE_S, sock_read=WATCH_SILENT_S)
        accept = METADATA.format("") if metadata else JSON
        answer = await self._send("GET", where.path(), query=query, accept=accept, deadline=timeout)
        async with answer.response:
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise ApiRefused(answer.status, error_message(await _body(answer)))
            try:
                async for line in lines(answer.response.content, OF_EVENTS, all_end=True):
                    yield _read(line, as_event)
            except aiohttp.SocketTimeoutError:
                return
            except CONNECTION_ERRORS as error:
                raise _unreachable(error) from error
            except ValueError as error:
                raise ApiUnreadable(f"cannot decode the watch: {error}") from error

    async def list_all(self, where: ResourcePath) -> AsyncIterator[Object]:
        async for page, _ in self.pages(where):
            for item in page:
                yield item
            del page

    async def list_metadata(
        self, where: ResourcePath, selection: Mapping[str, str] | None = None
    ) -> AsyncIterator[ObjectMetadata]:
        """Metadata of all selected objects, at a fraction of the cost of whole objects."""
        async for page in self._read_pages(where, selection, page_of, METADATA.format("List")):
            for item in page.listed():
                yield item

    async def _read_pages(
        self,
        where: ResourcePath,
        selection: Mapping[str, str] | None,
        read: Callable[[bytes], PageT],
        accept: str = JSON,
    ) -> AsyncIterator[PageT]:
        """A page of 16 MiB is up to 300 MB as objects: none is kept while the next is read."""
        query: dict[str, str] = {"limit": str(PAGE), **(selection or {})}
        while True:
            try:
                page = _read(await self.answer("GET", where.path(), query=query, accept=accept), read)
            except ApiTooLong:
                if query["limit"] == "1":
                    raise
                query["limit"] = str(max(1, int(query["limit"]) // 8))
                continue
            query["continue"] = page.continues_at
            yield page
            del page
            if not query["continue"]:
                return

    async def _ask_unless(
        self,
        statuses: frozenset[HTTPStatus],
        method: str,
        where: ResourcePath,
        subresource: str = "",
        **options: Unpack[RequestOptions],
    ) -> Object | None:
        """As `_ask`; None if it is refused with one of these statuses. An impossible name is a 404, too."""
        try:
            return await self._ask(method, where.path(subresource), **options)
        except ApiRefused as refusal:
            if refusal.status in statuses:
                return None
            raise

    async def _ask(self, method: str, path: str, **options: Unpack[RequestOptions]) -> Object:
        return _read(await self.answer(method, path, **options), as_object)

    async def answer(self, method: str, path: str, **options: Unpack[RequestOptions]) -> bytes:
        answer = await self._send(method, path, **options)
        raw = await _body(answer)
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise ApiRefused(answer.status, error_message(raw))
        return raw

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | list[Object] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        deadline: float | aiohttp.ClientTimeout = DEADLINE_S,
    ) -> client.rest.RESTResponse:
        # `param_serialize` of the client copies each body, to find models in it: ours is plain JSON.
        settings = self._api.configuration
        headers = {"Accept": accept, "Content-Type": content_type, **self._api.default_headers}
        if token := await settings.get_api_key_with_prefix("BearerToken", alias="authorization"):
            headers["authorization"] = token
        url = f"{settings.host}{path}?{urlencode(query, quote_via=quote)}" if query else settings.host + path
        try:
            return await self._api.call_api(method, url, headers, body, _request_timeout=deadline)
        except CONNECTION_ERRORS as error:
            raise _unreachable(error) from error


def is_path_segment(name: str) -> bool:
    """Whether it is valid as a name in a path; Kubernetes does not check names in ownerReferences."""
    return name not in {"", ".", ".."} and "/" not in name and "%" not in name


def _segment(name: str) -> str:
    """A name as one segment of a path: names come from tenants, and must not lead to another path.

    Quoting is not enough, because the API server reads %2F as a slash. Names that no object can have are not
    requested.
    """
    if not is_path_segment(name):
        raise ApiRefused(HTTPStatus.NOT_FOUND, f"no object in Kubernetes can have the name {name!r}")
    return quote(name, safe="")


async def _body(answer: client.rest.RESTResponse) -> bytes:
    """The whole body: a response may break off after its headers."""
    raw = bytearray()
    try:
        async with asyncio.timeout(DEADLINE_S), answer.response:
            async for chunk in answer.response.content.iter_any():
                raw += chunk
                if len(raw) > MOST_BYTES:
                    raise ApiTooLong(f"the response has more than {MOST_BYTES} bytes")
    except CONNECTION_ERRORS as error:
        raise _unreachable(error) from error
    return bytes(raw)


def _read(raw: bytes, read: Callable[[bytes], ReadT]) -> ReadT:
    """The decoded response."""
    try:
        return read(raw)
    except UNREADABLE as error:
        msg = f"the response did not come from a Kubernetes API server: {raw[:80]!r}"
        raise ApiUnreadable(msg) from error


def _field(response: Object, *path: str) -> str:
    """A required text field of a response."""
    found: Any = response
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, str):
        raise ApiUnreadable(
            f"the response did not come from a Kubernetes API server: no field {'.'.join(path)}"
        )
    return found


def _unreachable(error: BaseException) -> ApiUnreachable:
    return ApiUnreachable(f"the API server does not answer: {str(error) or type(error).__name__}")
