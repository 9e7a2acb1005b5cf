"""The bench of NodeSets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.hosting.controllers.node_set_bench import NodeSetBench, bench


@pytest.fixture
async def it() -> AsyncIterator[NodeSetBench]:
    """With an operator that runs."""
    async with bench() as made:
        yield made
