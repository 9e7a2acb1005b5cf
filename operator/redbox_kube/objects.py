"""Objects of the API server as plain JSON: read, create, apply, delete, each with a deadline.

`kubernetes.aio` brings connection, configuration and authentication; its typed models are left aside, since
what is built and compared here is JSON.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from kubernetes.aio import client, config

from redbox_kube.names import API_VERSION

Object = dict[str, Any]
DEADLINE_S = 30.0
PAGE = 500
PLURALS = {
    "SlurmJob": "slurmjobs",
    "SlurmCluster": "slurmclusters",
    "Node": "nodes",
    "Pod": "pods",
    "ConfigMap": "configmaps",
    "Event": "events",
}
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class ApiRefused(Exception):
    """The API server answered, and said no: `status` and its own words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Where:
    """An object's place in the API."""

    kind: str
    name: str = ""
    namespace: str = ""
    api_version: str = "v1"

    def path(self) -> str:
        """As in a URL."""
        group = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        inside = f"/namespaces/{quote(self.namespace)}" if self.namespace else ""
        return f"{group}{inside}/{PLURALS[self.kind]}" + (f"/{quote(self.name)}" if self.name else "")


def slurm_job(namespace: str, name: str) -> Where:
    """Where a SlurmJob is."""
    return Where("SlurmJob", name, namespace, API_VERSION)


class Objects:
    """The API server, asked as the controller's own service account."""

    def __init__(self, api: client.ApiClient, field_manager: str) -> None:
        self._api = api
        self._field_manager = field_manager

    @classmethod
    async def connect(cls, field_manager: str) -> Objects:
        """Use the pod's service account, or the kubeconfig outside of a cluster."""
        await config.load_config()  # type: ignore[no-untyped-call]
        return cls(client.ApiClient(), field_manager)

    async def close(self) -> None:
        """Close its connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    async def get(self, where: Where) -> Object | None:
        """The object, or None where there is none."""
        try:
            return await self._ask("GET", where.path())
        except ApiRefused as refusal:
            if refusal.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def create(self, where: Where, body: Object) -> Object | None:
        """Create; None where one of that name exists already."""
        try:
            return await self._ask("POST", where.path(), body=body)
        except ApiRefused as refusal:
            if refusal.status == HTTPStatus.CONFLICT:
                return None
            raise

    async def apply_status(self, where: Where, status: Object) -> Object:
        """Say what the status is, whole, as its one owner (server-side apply)."""
        body = {
            "apiVersion": where.api_version,
            "kind": where.kind,
            "metadata": {"name": where.name, "namespace": where.namespace},
            "status": status,
        }
        query = {"fieldManager": self._field_manager, "force": "true"}
        return await self._ask("PATCH", f"{where.path()}/status", query=query, body=body, content_type=APPLY)

    async def set_finalizers(
        self, where: Where, finalizers: list[str], *, resource_version: str
    ) -> Object | None:
        """Replace the finalizers of exactly this version; None where it has changed or is gone."""
        body = {"metadata": {"finalizers": finalizers, "resourceVersion": resource_version}}
        try:
            return await self._ask("PATCH", where.path(), body=body, content_type=MERGE)
        except ApiRefused as refusal:
            if refusal.status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                return None
            raise

    async def token_for(self, namespace: str, account: str, audience: str, *, seconds: int) -> str:
        """A token of a service account for one audience (TokenRequest)."""
        path = f"/api/v1/namespaces/{quote(namespace)}/serviceaccounts/{quote(account)}/token"
        spec = {"audiences": [audience], "expirationSeconds": seconds}
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        answer = await self._ask("POST", path, body={**kind, "spec": spec})
        return str(answer["status"]["token"])

    async def list_all(self, where: Where) -> AsyncIterator[Object]:
        """Every object of a kind, page by page."""
        query: dict[str, str] = {"limit": str(PAGE)}
        while True:
            page = await self._ask("GET", where.path(), query=query)
            for item in page["items"]:
                yield item
            if not page["metadata"].get("continue"):
                return
            query["continue"] = page["metadata"]["continue"]

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        method, url, headers, sent, _ = await self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = await self._api.call_api(method, url, headers, sent, _request_timeout=DEADLINE_S)
        raw: bytes = await answer.read()  # type: ignore[no-untyped-call]
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise ApiRefused(answer.status, _words(raw))
        return dict(json.loads(raw))


def _words(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["message"])
    except (ValueError, KeyError, TypeError):
        return raw[:500].decode("utf-8", "replace")
