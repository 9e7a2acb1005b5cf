"""The HTTP session of kopf: bounded nesting of all JSON that it receives, and no event about our own writes.

kopf exits when it cannot parse a listed or watched object, and the operator with it. A single deeply nested
object of any tenant would cause that, and again after each restart.

Most events of a SlurmJob are about the operator's own writes, whose answers it has cached. kopf would parse
each, and have a task for it. Bookmarks keep the version at which kopf watches on.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self, cast

import kopf
import structlog
from aiohttp import (
    ClientConnectionError,
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    StreamReader,
    TCPConnector,
)

from redbox_kube.api.nesting_limit import bounded, parsed

if TYPE_CHECKING:
    from aiohttp.connector import Connection

log = structlog.get_logger(__name__)
IsOwnWrite = Callable[[str], bool]
"""Whether we have written the object's version of this number, and cached the answer."""
ERROR = re.compile(rb'\s*\{\s*"type"\s*:\s*"ERROR"')
EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"list again"}}'
"""The only error of a watch after which kopf lists again; any other one ends all its watches."""
TRIED_AGAIN = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
"""After a new login, or a pause; by any other refusal of a list or watch kopf ends all its watches."""
OF_A_WRITE = (b'{"type":"MODIFIED"', b'{"type":"ADDED"')
VERSION = re.compile(rb'"resourceVersion":"([0-9]+)"')


def session_by(
    login: kopf.ConnectionInfo,
    is_own_write: IsOwnWrite,
    watch_read: Callable[[], None] = lambda: None,
    is_newest: Callable[[kopf.ConnectionInfo], bool] = lambda _: False,
) -> kopf.AiohttpSession:
    """The session that kopf itself would create from this login, with our responses.

    `watch_read` is called with each piece of a watch; bookmarks come every minute. `is_newest`: whether
    another login would be the same.
    """
    own = {
        "is_own_write": staticmethod(is_own_write),
        "watch_read": staticmethod(watch_read),
        "is_login_newest": staticmethod(lambda: is_newest(login)),
    }
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
            response_class=type("Response", (BoundedResponse,), own),
        ),
    )


class BoundedResponse(ClientResponse):
    """A response whose JSON is bounded in both ways that kopf reads it."""

    @staticmethod
    def is_own_write(_version: str) -> bool:
        """Replaced in each session's own class."""
        return False

    @staticmethod
    def watch_read() -> None:
        """The same."""

    @staticmethod
    def is_login_newest() -> bool:
        """The same."""
        return False

    async def start(self, connection: Connection) -> Self:
        """Kopf reads a watch from `content`.

        Kopf ends all its watches by an answer 410, as to a page of a list that has taken longer than the API
        server keeps its version, or 404, as while its CRD is replaced. After an EXPIRED line, or a
        ClientPayloadError in a list, it lists again two seconds later, and logs nothing. After a
        ClientConnectionError it tries again after growing pauses, and logs each try: so a list that is
        refused as a whole is seen, as of a CRD that is gone where the operator may not watch CRDs. The same
        by an answer 401 where it can log in only as before, for an API server that starts, or reaches no
        etcd, may refuse a good token; and by a page of HTML, which a proxy before the API server writes.
        """
        await super().start(connection)
        if self.status == HTTPStatus.UNAUTHORIZED and self.is_login_newest():
            raise ClientConnectionError("the API server does not accept the newest token")  # tried again
        if self.ok and self.content_type.startswith("text/"):
            raise ClientConnectionError(f"an answer of type {self.content_type} is not the API server's")
        lines_of = _BoundedLines
        if HTTPStatus.BAD_REQUEST <= self.status < HTTPStatus.INTERNAL_SERVER_ERROR and (
            self.status not in TRIED_AGAIN
        ):
            if "limit" in self.url.query:
                if self.status == HTTPStatus.GONE or "continue" in self.url.query:
                    raise ClientPayloadError("this list has to begin again")
                cure = ": is its CRD installed?" if self.status == HTTPStatus.NOT_FOUND else ""
                raise ClientConnectionError(f"the API server refuses this list: status {self.status}{cure}")
            if "watch" in self.url.query:
                if self.status != HTTPStatus.GONE:
                    log.warning("watch refused", path=self.url.path, status=self.status)
                self.status, lines_of = HTTPStatus.OK, _ExpiredWatch
        self.content = cast("StreamReader", lines_of(self.content, self.is_own_write, self.watch_read))
        return self

    async def json(self, **options: Any) -> Any:  # noqa: ANN401 (any JSON)
        """Kopf reads a list by this."""
        return await super().json(**{"loads": parsed, **options})


class _BoundedLines:
    """The content of a watch, in whole lines."""

    def __init__(self, content: StreamReader, is_own_write: IsOwnWrite, read: Callable[[], None]) -> None:
        self._content = content
        self._is_own_write = is_own_write
        self._read = read

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (any JSON)
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        partial_line = b""
        async for piece in self._content.iter_chunked(size):
            self._read()
            *lines, partial_line = (partial_line + piece).split(b"\n")
            for line in lines:
                if ERROR.match(line):
                    yield EXPIRED + b"\n"
                elif not self._is_known(line):
                    yield bounded(line) + b"\n"
        if partial_line:
            yield bounded(partial_line)

    def _is_known(self, line: bytes) -> bool:
        """Whether it is about a write of ours. A label of a user may be called resourceVersion, too."""
        versions = VERSION.findall(line) if line.startswith(OF_A_WRITE) else ()
        return len(versions) == 1 and self._is_own_write(versions[0].decode())


class _ExpiredWatch(_BoundedLines):
    """The content of a watch that the API server has not begun."""

    async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        yield EXPIRED + b"\n"
