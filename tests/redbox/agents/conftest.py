"""Real agents in a pool, and a login host of one's own where root can make one."""

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
from tests.redbox.agents.login_host import LoginHost


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


@pytest.fixture(scope="session")
def login_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginHost]:
    missing = [
        name
        for name in ("/usr/bin/sudo", "/usr/sbin/sshd", "/bin/tcsh", "/usr/bin/fish")
        if not Path(name).exists()
    ]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root (for a mount namespace) and {', '.join(missing) or 'nothing else'}")
    with LoginHost.running(tmp_path_factory.mktemp("login-host")) as host:
        yield host
