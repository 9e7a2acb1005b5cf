"""Lists of the old kinds, which a cluster need not have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import TypeVar

from redbox_kube.api.objects import ApiRefused, ResourcePath
from redbox_operator.api.sylabs import OLD_KINDS

ItemT = TypeVar("ItemT")


async def if_served(where: ResourcePath, items: AsyncIterator[ItemT]) -> AsyncIterator[ItemT]:
    """The items; none where an old kind is not installed. Any other kind is: its 404 is an error."""
    try:
        async for item in items:
            yield item
    except ApiRefused as refusal:
        if refusal.status != HTTPStatus.NOT_FOUND or where.kind not in OLD_KINDS:
            raise
