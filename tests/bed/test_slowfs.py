"""The slow home directory's own tests, in Go: its clients are processes in a mount namespace of the tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from redbox_bed.core.places import CHECKOUT, Places
from redbox_bed.core.progress import Progress
from redbox_bed.programs.golang import find_go

MODULE = CHECKOUT / "deploy/local/slowfs"
WITHIN_S = 600


@pytest.mark.timeout(WITHIN_S)
def test_clients_see_each_others_writes_as_late_as_nfs_shows_them() -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.fail("the slow /home is a FUSE file system: run this as root, on a machine with /dev/fuse")
    go = find_go(Places.of(), Progress.silent())
    environ = {name: value for name, value in os.environ.items() if name != "GOGC"}  # it measures memory
    ran = subprocess.run(
        [go, "test", "-count=1", "./..."],
        cwd=MODULE,
        env={**environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
