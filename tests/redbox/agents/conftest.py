"""Real agents in a pool."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from redbox.agents.agent import AgentClient
from redbox.agents.pool import AgentPool
from redbox.core.domain import UnixUser
from tests.redbox.agents.harness import LaunchedTransport, tests_user


@pytest.fixture
def user() -> UnixUser:
    return tests_user()


@pytest.fixture
def transport() -> Iterator[LaunchedTransport]:
    transport = LaunchedTransport()
    yield transport
    transport.end_all()


@pytest.fixture
async def pool(transport: LaunchedTransport) -> AsyncIterator[AgentPool]:
    async with AgentPool(transport) as pool:
        yield pool


@pytest.fixture
async def agent(pool: AgentPool, user: UnixUser) -> AgentClient:
    return await pool.agent(user)


@pytest.fixture
def folder(tmp_path: Path, user: UnixUser) -> Iterator[Path]:
    """Make a directory of the agents' user, which that user can reach."""
    folder = Path("/dev/shm") / f"redbox-tests-{os.getpid()}-{tmp_path.name}"
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(folder, user.uid, user.uid)
    yield folder
    shutil.rmtree(folder)
