"""Requests to a Kubernetes API server, each with a deadline and a bound on its response.

By https with the cluster's CA and a bearer token from a file; both are read again when they change. The
requests are those of `key_sets` and `token_review`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession, TCPConnector

from redbox.callers.errors import ApiServerUnavailable
from redbox.callers.file_version import FileVersion, file_version
from redbox.callers.tokens.api_access import ApiAccess
from redbox.core.turns import as_own_work
from redbox_api.bodies import whole
from redbox_api.connections import explain, plain_session
from redbox_api.limits.answer_limits import AnswerLimits

OF_ANSWERS = AnswerLimits(longest=1024 * 1024)
MAX_CONNECTIONS = 16
SUCCESS = range(200, 300)


class ApiServerClient:
    """A client of one API server, with persistent connections.

    Its requests are red-box's own work: callers share the connections, and a connection works for the one who
    opened it.
    """

    def __init__(self, access: ApiAccess) -> None:
        self._access = access
        self._session: ClientSession | None = None
        self._ca_version: FileVersion | None = None

    async def get(self, url: str) -> bytes:
        """Return the body; raises ApiServerUnavailable."""
        return await as_own_work(self._call("GET", url))

    async def post(self, url: str, body: Mapping[str, Any]) -> bytes:
        """Return the body; raises ApiServerUnavailable."""
        return await as_own_work(self._call("POST", url, body))

    async def date(self, url: str) -> str | None:
        """Return the Date header, also of an error response; None without one."""
        return await as_own_work(self._date(url))

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _date(self, url: str) -> str | None:
        async with self._request("HEAD", url) as response:
            return response.headers.get("date")

    async def _call(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> bytes:
        async with self._request(method, url, body) as response:
            content = await whole(response.content, OF_ANSWERS)
        if response.status not in SUCCESS:
            text = content[:200].decode(errors="replace")
            raise ApiServerUnavailable(f"{url} answered {response.status}: {text}")
        return content

    @asynccontextmanager
    async def _request(
        self, method: str, url: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[ClientResponse]:
        """Yield the response, to be read within the deadline."""
        try:
            async with asyncio.timeout(self._access.deadline_s):
                session = await self._connected()
                async with session.request(
                    method, url, json=body, headers=self._authorization(), allow_redirects=False
                ) as response:
                    yield response
        except TimeoutError as error:
            raise ApiServerUnavailable(
                f"{url} did not answer within {self._access.deadline_s:g} s"
            ) from error
        except (ClientError, OSError, ValueError) as error:
            raise ApiServerUnavailable(f"the request to {url} failed: {explain(error)}") from error

    async def _connected(self) -> ClientSession:
        ca_file = self._access.ca_file
        version = file_version(ca_file) if ca_file else None
        if self._session is None or version != self._ca_version:
            await self.close()
            context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
            self._session = plain_session(TCPConnector(ssl=context, limit=MAX_CONNECTIONS))
            self._ca_version = version
        return self._session

    def _authorization(self) -> dict[str, str]:
        if self._access.token_file is None:
            return {}
        token = self._access.token_file.read_text(encoding="ascii").strip()
        return {"Authorization": f"Bearer {token}"}
