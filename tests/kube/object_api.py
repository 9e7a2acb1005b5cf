"""The Protocol that `ObjectClient` and the API server of the tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Protocol, Unpack

from redbox_kube.api.metadata_list import ObjectMetadata
from redbox_kube.api.objects import Object, PodRef, ResourcePath
from redbox_kube.api.request_options import DeleteOptions


class ObjectApi(Protocol):
    """What the controllers call of `ObjectClient`."""

    field_manager: str

    async def close(self) -> None: ...
    async def server_version(self) -> str: ...
    async def get(self, where: ResourcePath) -> Object | None: ...
    async def create(self, where: ResourcePath, body: Object, *, dry_run: bool = False) -> Object | None: ...
    async def replace(self, where: ResourcePath, body: Object) -> Object | None: ...
    async def apply_status(self, where: ResourcePath, status: Object, *, uid: str = "") -> Object: ...
    async def set_finalizers(
        self, where: ResourcePath, finalizers: list[str], *, resource_version: str
    ) -> Object | None: ...
    async def token_for(
        self, namespace: str, account: str, audience: str, *, seconds: int, pod: PodRef | None = None
    ) -> str: ...
    async def apply(
        self, where: ResourcePath, body: Object, *, field_manager: str = "", subresource: str = ""
    ) -> Object: ...
    async def merge(self, where: ResourcePath, body: Object, *, subresource: str = "") -> Object | None: ...
    async def json_patch(
        self, where: ResourcePath, operations: list[Object], *, dry_run: bool = False
    ) -> Object | None: ...
    async def delete(
        self, where: ResourcePath, *, uid: str = "", version: str = "", **options: Unpack[DeleteOptions]
    ) -> HTTPStatus: ...
    def pages(
        self, where: ResourcePath, selection: Mapping[str, str] | None = None, *, metadata: bool = False
    ) -> AsyncIterator[tuple[list[Object], str]]: ...
    def watch(
        self,
        where: ResourcePath,
        since: str,
        selection: Mapping[str, str] | None = None,
        *,
        metadata: bool = False,
    ) -> AsyncIterator[Object]: ...
    def list_all(self, where: ResourcePath) -> AsyncIterator[Object]: ...
    def list_metadata(
        self, where: ResourcePath, selection: Mapping[str, str] | None = None
    ) -> AsyncIterator[ObjectMetadata]: ...
