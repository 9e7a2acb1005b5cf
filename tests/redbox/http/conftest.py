from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.redbox.http.harness import Stand, standing


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with standing() as stand:
        yield stand


@pytest.fixture
async def alice(stand: Stand) -> AsyncIterator[httpx.AsyncClient]:
    """Alice's, at the Unix socket."""
    async with stand.at_socket() as http:
        yield http


@pytest.fixture
async def bob(stand: Stand) -> AsyncIterator[httpx.AsyncClient]:
    """Bob's, over TLS with a token."""
    async with stand.by_token("bob") as http:
        yield http
