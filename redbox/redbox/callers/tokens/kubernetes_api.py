"""Calls to a Kubernetes API server, each with a deadline and a bound on its answer.

Knows https with the cluster's CA and a bearer token from a file; both are read again when they change. What
is asked, and what the answer means, is for `key_sets` and `token_review`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession, TCPConnector

from redbox.callers.file_version import FileVersion, file_version
from redbox_api.connections import explain, plain_session

MAX_ANSWER_BYTES = 1024 * 1024
MAX_CONNECTIONS = 16
SUCCESS = range(200, 300)


class ApiServerUnavailable(Exception):
    """The API server could not be asked, or answered with something else than success."""


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """How to reach an API server."""

    ca_file: Path | None
    token_file: Path | None
    deadline_s: float


class ApiServerClient:
    """One API server, over connections that are kept."""

    def __init__(self, access: ApiAccess) -> None:
        self._access = access
        self._session: ClientSession | None = None
        self._ca_stamp: FileVersion | None = None

    async def get(self, url: str) -> bytes:
        """The body of a successful answer."""
        return await self._call("GET", url)

    async def post(self, url: str, body: Mapping[str, Any]) -> bytes:
        """The body of a successful answer."""
        return await self._call("POST", url, body)

    async def date(self, url: str) -> str | None:
        """What time it is there, also for those whom it does not let in; None where it does not say."""
        async with self._asked("HEAD", url) as answer:
            return answer.headers.get("date")

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _call(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> bytes:
        async with self._asked(method, url, body) as answer:
            content = bytearray()
            async for chunk in answer.content.iter_any():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    raise ApiServerUnavailable(f"{url} answered with more than {MAX_ANSWER_BYTES} bytes")
        if answer.status not in SUCCESS:
            words = bytes(content[:200]).decode(errors="replace")
            raise ApiServerUnavailable(f"{url} answered {answer.status}: {words}")
        return bytes(content)

    @asynccontextmanager
    async def _asked(
        self, method: str, url: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[ClientResponse]:
        """The answer, to be read within the deadline."""
        try:
            async with asyncio.timeout(self._access.deadline_s):
                session = await self._connected()
                async with session.request(
                    method, url, json=body, headers=self._authorization(), allow_redirects=False
                ) as answer:
                    yield answer
        except TimeoutError as error:
            raise ApiServerUnavailable(
                f"{url} did not answer within {self._access.deadline_s:g} s"
            ) from error
        except (ClientError, OSError, ValueError) as error:
            raise ApiServerUnavailable(f"{url} could not be asked: {explain(error)}") from error

    async def _connected(self) -> ClientSession:
        stamp = file_version(self._access.ca_file) if self._access.ca_file else None
        if self._session is None or stamp != self._ca_stamp:
            await self.close()
            ca_file = self._access.ca_file
            context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
            self._session = plain_session(TCPConnector(ssl=context, limit=MAX_CONNECTIONS))
            self._ca_stamp = stamp
        return self._session

    def _authorization(self) -> dict[str, str]:
        if self._access.token_file is None:
            return {}
        token = self._access.token_file.read_text(encoding="ascii").strip()
        return {"Authorization": f"Bearer {token}"}
