"""Calls to a Kubernetes API server, each with a deadline and a bound on its answer.

Knows https with the cluster's CA and a bearer token from a file; both are read again when they change. What
is asked, and what the answer means, is for `key_sets` and `token_review`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from redbox.callers.stamps import Stamp, stamp_of

MAX_ANSWER_BYTES = 1024 * 1024
MAX_CONNECTIONS = 16


class NoAnswer(Exception):
    """The API server could not be asked, or answered with something else than success."""


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """How to reach an API server."""

    ca_file: Path | None
    token_file: Path | None
    deadline_s: float


class ApiServer:
    """One API server, over connections that are kept."""

    def __init__(self, access: ApiAccess) -> None:
        self._access = access
        self._client: httpx.AsyncClient | None = None
        self._ca_stamp: Stamp | None = None

    async def get(self, url: str) -> bytes:
        """The body of a successful answer."""
        return await self._call("GET", url)

    async def post(self, url: str, body: Mapping[str, Any]) -> bytes:
        """The body of a successful answer."""
        return await self._call("POST", url, body)

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _call(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> bytes:
        try:
            async with asyncio.timeout(self._access.deadline_s):
                return await self._exchange(method, url, body)
        except TimeoutError as error:
            raise NoAnswer(f"{url} did not answer within {self._access.deadline_s:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise NoAnswer(f"{url} could not be asked: {str(error) or type(error).__name__}") from error

    async def _exchange(self, method: str, url: str, body: Mapping[str, Any] | None) -> bytes:
        client = await self._connected()
        async with client.stream(method, url, json=body, headers=self._authorization()) as answer:
            content = bytearray()
            async for chunk in answer.aiter_bytes():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    raise NoAnswer(f"{url} answered with more than {MAX_ANSWER_BYTES} bytes")
        if not answer.is_success:
            words = bytes(content[:200]).decode(errors="replace")
            raise NoAnswer(f"{url} answered {answer.status_code}: {words}")
        return bytes(content)

    async def _connected(self) -> httpx.AsyncClient:
        stamp = stamp_of(self._access.ca_file) if self._access.ca_file else None
        if self._client is None or stamp != self._ca_stamp:
            await self.close()
            ca_file = self._access.ca_file
            self._client = httpx.AsyncClient(
                verify=ssl.create_default_context(cafile=str(ca_file) if ca_file else None),
                timeout=None,  # noqa: S113 (the whole exchange has one deadline)
                limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
                trust_env=False,  # neither a proxy nor a netrc of whoever started the server
            )
            self._ca_stamp = stamp
        return self._client

    def _authorization(self) -> dict[str, str]:
        if self._access.token_file is None:
            return {}
        token = self._access.token_file.read_text(encoding="ascii").strip()
        return {"Authorization": f"Bearer {token}"}
