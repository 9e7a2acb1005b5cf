"""A login host of one's own, where root can make one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redbox.agents.login_host import LoginHost


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
