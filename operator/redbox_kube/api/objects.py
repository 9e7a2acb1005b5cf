"""Objects of the API server as plain JSON: read, create, apply, delete, each with a deadline.

`kubernetes.aio` brings connection, configuration and authentication; its typed models are left aside, since
what is built and compared here is JSON.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import client, config

from redbox_kube.api.decoding import UNREADABLE, as_event, as_object, as_page, lines, words
from redbox_kube.api.metadata_list import ObjectMetadata, page_of

Object = dict[str, Any]
ReadT = TypeVar("ReadT")
DEADLINE_S = 30.0
WATCH_S = 300
WATCH_SILENT_S = 100.0  # bookmarks come every minute: a longer silence is a broken line
PAGE = 500
PLURALS = {
    "SlurmJob": "slurmjobs",
    "WlmJob": "wlmjobs",
    "SlurmCluster": "slurmclusters",
    "Node": "nodes",
    "Pod": "pods",
    "ConfigMap": "configmaps",
    "Event": "events",
    "Lease": "leases",
    "Deployment": "deployments",
    "CustomResourceDefinition": "customresourcedefinitions",
    "SubjectAccessReview": "subjectaccessreviews",
    "CertificateSigningRequest": "certificatesigningrequests",
}
APPLY = "application/apply-patch+yaml"
JSON = "application/json"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
MERGE = "application/merge-patch+json"
NO_ANSWER = (aiohttp.ClientError, OSError, TimeoutError)


class ApiError(Exception):
    """Base of what can go wrong between the controllers and the API server."""


class ApiUnreachable(ApiError):
    """No answer, or half of one: nobody knows what the API server did."""


class ApiUnreadable(ApiUnreachable):
    """Something came that nobody can read. Of a watch: only a list gets past it."""


class ApiRefused(ApiError):
    """The API server answered, and said no: `status` and its own words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ResourcePath:
    """An object's place in the API."""

    kind: str
    name: str = ""
    namespace: str = ""
    api_version: str = "v1"

    def all(self) -> ResourcePath:
        """Every object of the kind, where this one is."""
        return replace(self, name="")

    def path(self) -> str:
        """As in a URL."""
        group, _, version = self.api_version.partition("/")
        begins = "/api/v1" if self.api_version == "v1" else f"/apis/{_segment(group)}/{_segment(version)}"
        inside = f"/namespaces/{_segment(self.namespace)}" if self.namespace else ""
        return f"{begins}{inside}/{PLURALS[self.kind]}" + (f"/{_segment(self.name)}" if self.name else "")


class PodRef(NamedTuple):
    """Which pod of that name is meant."""

    name: str
    uid: str


class ObjectClient:
    """The API server, asked as the controller's own service account."""

    def __init__(self, api: client.ApiClient, field_manager: str) -> None:
        self._api = api
        self._field_manager = field_manager

    @classmethod
    async def connect(cls, field_manager: str) -> Self:
        """Use the pod's service account, or the kubeconfig outside of a cluster."""
        try:
            if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
                config.load_incluster_config()  # type: ignore[no-untyped-call]
            else:
                await config.load_kube_config()  # type: ignore[no-untyped-call]
        except config.ConfigException as error:
            raise ApiUnreachable(f"no Kubernetes is known here, set KUBECONFIG: {error}") from error
        settings = client.Configuration.get_default_copy()
        settings.connection_pool_maxsize = 0  # none: each virtual node has a watch, which holds a connection
        # Left to aiohttp, two threads look into the environment before each request: a quarter of its cost.
        settings.client_session_kwargs = {"trust_env": False}
        settings.proxy = settings.proxy or proxy_in_environment(settings.host)
        return cls(client.ApiClient(settings), field_manager)

    def impersonating(self, user: str, group: str) -> ObjectClient:
        """The same API server, asked as somebody else; to be closed apart."""
        api = client.ApiClient(self._api.configuration)
        api.set_default_header("Impersonate-User", user)  # type: ignore[no-untyped-call]
        api.set_default_header("Impersonate-Group", group)  # type: ignore[no-untyped-call]
        return ObjectClient(api, self._field_manager)

    async def close(self) -> None:
        """Close its connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    async def server_version(self) -> str:
        """The API server's, as v1.34.4."""
        return _field(await self._ask("GET", "/version"), "gitVersion")

    async def get(self, where: ResourcePath) -> Object | None:
        """The object, or None where there is none."""
        try:
            return await self._ask("GET", where.path())
        except ApiRefused as refusal:
            if refusal.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def create(self, where: ResourcePath, body: Object) -> Object | None:
        """Create; None where one of that name exists already."""
        try:
            return await self._ask("POST", where.path(), body=body)
        except ApiRefused as refusal:
            if refusal.status == HTTPStatus.CONFLICT:
                return None
            raise

    async def replace(self, where: ResourcePath, body: Object) -> Object | None:
        """Put the whole object in place of the version it came from; None where that is not the newest."""
        try:
            return await self._ask("PUT", where.path(), body=body)
        except ApiRefused as refusal:
            if refusal.status == HTTPStatus.CONFLICT:
                return None
            raise

    async def apply_status(self, where: ResourcePath, status: Object, *, uid: str = "") -> Object:
        """Say what the status is, whole, as its one owner (server-side apply); `uid`: of this one only."""
        metadata = {"name": where.name, "namespace": where.namespace, "uid": uid}
        body = {
            "apiVersion": where.api_version,
            "kind": where.kind,
            "metadata": {name: value for name, value in metadata.items() if value},
            "status": status,
        }
        query = {"fieldManager": self._field_manager, "force": "true"}
        return await self._ask("PATCH", f"{where.path()}/status", query=query, body=body, content_type=APPLY)

    async def set_finalizers(
        self, where: ResourcePath, finalizers: list[str], *, resource_version: str
    ) -> Object | None:
        """Replace the finalizers of exactly this version; None where it has changed or is gone."""
        body = {"metadata": {"finalizers": finalizers, "resourceVersion": resource_version}}
        try:
            return await self._ask("PATCH", where.path(), body=body, content_type=MERGE)
        except ApiRefused as refusal:
            if refusal.status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                return None
            raise

    async def token_for(
        self, namespace: str, account: str, audience: str, *, seconds: int, pod: PodRef | None = None
    ) -> str:
        """A token of a service account for one audience (TokenRequest); bound to a pod it dies with it."""
        path = f"/api/v1/namespaces/{_segment(namespace)}/serviceaccounts/{_segment(account)}/token"
        spec: Object = {"audiences": [audience], "expirationSeconds": seconds}
        if pod:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        answer = await self._ask("POST", path, body={**kind, "spec": spec})
        return _field(answer, "status", "token")

    async def apply(
        self, where: ResourcePath, body: Object, *, field_manager: str = "", subresource: str = ""
    ) -> Object:
        """Say what this manager's fields are, all of them: those it no longer names are withdrawn."""
        path = where.path() + (f"/{subresource}" if subresource else "")
        query = {"fieldManager": field_manager or self._field_manager, "force": "true"}
        named = {"apiVersion": where.api_version, "kind": where.kind, **body}
        named["metadata"] = {"name": where.name, **body.get("metadata", {})}
        return await self._ask("PATCH", path, query=query, body=named, content_type=APPLY)

    async def merge(self, where: ResourcePath, body: Object, *, subresource: str = "") -> Object | None:
        """Change these fields, null removes one; None where the object is gone or not of that version."""
        path = where.path() + (f"/{subresource}" if subresource else "")
        query = {"fieldManager": self._field_manager}
        try:
            return await self._ask("PATCH", path, query=query, body=body, content_type=MERGE)
        except ApiRefused as refusal:
            if refusal.status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                return None
            raise

    async def delete(self, where: ResourcePath, *, uid: str = "", grace_s: int | None = None) -> None:
        """Delete; with `uid`, only the one object that has it. Gone already is as good."""
        body: Object = {"preconditions": {"uid": uid}} if uid else {}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            await self._ask("DELETE", where.path(), body=body)
        except ApiRefused as refusal:
            if refusal.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                raise

    async def pages(
        self, where: ResourcePath, selection: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[list[Object], str]]:
        """Every object selected, page by page, each with the resourceVersion that a watch may begin at."""
        query: dict[str, str] = {"limit": str(PAGE), **(selection or {})}
        while True:
            page = _read(await self._answer("GET", where.path(), query), as_page)
            yield page.items, page.version
            if not page.continues_at:
                return
            query["continue"] = page.continues_at

    async def watch(
        self, where: ResourcePath, since: str, selection: Mapping[str, str] | None = None
    ) -> AsyncIterator[Object]:
        """Events from a resourceVersion on, bookmarks among them; ends after some minutes."""
        query = {
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
            **(selection or {}),
        }
        patience = aiohttp.ClientTimeout(connect=DEADLINE_S, sock_read=WATCH_SILENT_S)
        answer = await self._send("GET", where.path(), query, deadline=patience)
        async with answer.response:
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise ApiRefused(answer.status, words(await _body(answer)))
            try:
                async for line in lines(answer.response.content):
                    yield _read(line, as_event)
            except NO_ANSWER as error:
                raise _unreachable(error) from error
            except ValueError as error:
                raise ApiUnreadable(f"a watch that cannot be read: {error}") from error

    async def list_all(self, where: ResourcePath) -> AsyncIterator[Object]:
        """Every object of a kind."""
        async for page, _ in self.pages(where):
            for item in page:
                yield item

    async def list_metadata(
        self, where: ResourcePath, selection: Mapping[str, str] | None = None
    ) -> AsyncIterator[ObjectMetadata]:
        """Which of the objects selected there are: enough to see what changed, for a fraction of the cost."""
        query: dict[str, str] = {"limit": str(PAGE), **(selection or {})}
        while True:
            raw = await self._answer("GET", where.path(), query=query, accept=METADATA_ONLY)
            page = _read(raw, page_of)
            for item in page.listed():
                yield item
            if not page.continues_at:
                return
            query["continue"] = page.continues_at

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = JSON,
    ) -> Object:
        raw = await self._answer(method, path, query, body=body, content_type=content_type)
        return _read(raw, as_object)

    async def _answer(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        body: Object | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        answer = await self._send(method, path, query, body=body, content_type=content_type, accept=accept)
        raw = await _body(answer)
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise ApiRefused(answer.status, words(raw))
        return raw

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        *,
        body: Object | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        deadline: float | aiohttp.ClientTimeout = DEADLINE_S,
    ) -> client.rest.RESTResponse:
        headers = {"Accept": accept, "Content-Type": content_type}
        method, url, headers, sent, _ = await self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            return await self._api.call_api(method, url, headers, sent, _request_timeout=deadline)
        except NO_ANSWER as error:
            raise _unreachable(error) from error


def proxy_in_environment(url: str) -> str | None:
    """As HTTPS_PROXY, HTTP_PROXY and NO_PROXY have it for this URL."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def can_be_called(name: str) -> bool:
    """Whether Kubernetes lets any object be called so; in an ownerReference it does not look at that."""
    return name not in {"", ".", ".."} and "/" not in name and "%" not in name


def _segment(name: str) -> str:
    """A name as one part of a path; tenants name what they like, and it must not lead elsewhere.

    To quote is not enough, since the API server takes %2F for a slash. What it lets no object be called is
    not asked for.
    """
    if not can_be_called(name):
        raise ApiRefused(HTTPStatus.NOT_FOUND, f"nothing in Kubernetes can be called {name!r}")
    return quote(name, safe="")


async def _body(answer: client.rest.RESTResponse) -> bytes:
    """All of it: an answer may break off also after it began."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            raw: bytes = await answer.read()  # type: ignore[no-untyped-call]
    except NO_ANSWER as error:
        raise _unreachable(error) from error
    return raw


def _read(raw: bytes, read: Callable[[bytes], ReadT]) -> ReadT:
    """What was answered, as whoever asked wants it."""
    try:
        return read(raw)
    except UNREADABLE as error:
        msg = f"what answers as the API server is none: it says {raw[:80]!r}"
        raise ApiUnreadable(msg) from error


def _field(answer: Object, *way: str) -> str:
    """A text in an answer, which has no meaning without it."""
    found: Any = answer
    for name in way:
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, str):
        raise ApiUnreadable(f"what answers as the API server is none: it says no {'.'.join(way)}")
    return found


def _unreachable(error: BaseException) -> ApiUnreachable:
    return ApiUnreachable(f"the API server does not answer: {str(error) or type(error).__name__}")
