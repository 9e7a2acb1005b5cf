from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from redbox_api.client import RedboxClient
from tests.redbox.http.harness import Stand, standing


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with standing() as stand:
        yield stand


@pytest.fixture
async def alice(stand: Stand) -> AsyncIterator[RedboxClient]:
    async with stand.client() as client:
        yield client
