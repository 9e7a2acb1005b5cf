"""The session that kopf speaks to the API server by: all that comes over it can be parsed and copied.

kopf ends where it cannot parse what it lists or watches, and with it the operator. One object that is nested
deep enough would do that, whoever made it, and again after each restart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Self, cast

import kopf
from aiohttp import ClientResponse, ClientSession, StreamReader, TCPConnector

from redbox_kube.api.nesting_limit import bounded, parsed

if TYPE_CHECKING:
    from aiohttp.connector import Connection


def session_by(login: kopf.ConnectionInfo) -> kopf.AiohttpSession:
    """As kopf itself would make it of this login."""
    return kopf.AiohttpSession(
        server=login.server,
        default_namespace=login.default_namespace,
        priority=login.priority,
        expiration=login.expiration,
        aiohttp_session=ClientSession(
            connector=TCPConnector(limit=0, ssl=login.as_ssl_context()),
            headers=login.as_http_headers(),
            proxy=login.proxy_url,
            trust_env=login.trust_env,
            response_class=FollowedResponse,
        ),
    )


class FollowedResponse(ClientResponse):
    """An answer, whole or line by line."""

    async def start(self, connection: Connection) -> Self:
        """A watch is read from `content`."""
        await super().start(connection)
        self.content = cast("StreamReader", _Lines(self.content))
        return self

    async def json(self, **options: Any) -> Any:  # noqa: ANN401 (whatever it is)
        """A list is read by this."""
        return await super().json(**{"loads": parsed, **options})


class _Lines:
    """What comes of a watch, by whole lines."""

    def __init__(self, content: StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever it is)
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        begun = b""
        async for piece in self._content.iter_chunked(size):
            *lines, begun = (begun + piece).split(b"\n")
            for line in lines:
                yield bounded(line) + b"\n"
        if begun:
            yield bounded(begun)
