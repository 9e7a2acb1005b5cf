"""The HTTP session of kopf, with bounded nesting of all JSON that it receives.

kopf exits when it cannot parse a listed or watched object, and the operator with it. A single deeply nested
object of any tenant would cause that, and again after each restart.
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
    """The session that kopf itself would create from this login, with our responses."""
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
            response_class=BoundedResponse,
        ),
    )


class BoundedResponse(ClientResponse):
    """A response whose JSON is bounded in both ways that kopf reads it."""

    async def start(self, connection: Connection) -> Self:
        """Kopf reads a watch from `content`."""
        await super().start(connection)
        self.content = cast("StreamReader", _BoundedLines(self.content))
        return self

    async def json(self, **options: Any) -> Any:  # noqa: ANN401 (any JSON)
        """Kopf reads a list by this."""
        return await super().json(**{"loads": parsed, **options})


class _BoundedLines:
    """The content of a watch, in whole lines."""

    def __init__(self, content: StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (any JSON)
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        partial_line = b""
        async for piece in self._content.iter_chunked(size):
            *lines, partial_line = (partial_line + piece).split(b"\n")
            for line in lines:
                yield bounded(line) + b"\n"
        if partial_line:
            yield bounded(partial_line)
