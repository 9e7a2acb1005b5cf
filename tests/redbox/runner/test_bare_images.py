"""Commands in containers of images with one program and nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from redbox.node.program.loader_variables import has_setter
from redbox.relay.program import places
from tests.redbox.runner.harness import LIMIT_S, Node, container, reasons, state_of


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Without `env`."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("sh", "sleep", "test"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return folder


def test_a_probe_needs_no_env_in_the_image(node: Node, programs: Path) -> None:
    """Apptainer gives each container an LD_LIBRARY_PATH, which `env` sets for a probe's command."""
    own = [
        {"name": "PATH", "value": str(programs)},
        {"name": "LD_LIBRARY_PATH", "value": "/.singularity.d/libs"},
    ]
    probe = {"exec": ["test", "-e", "/"], "periodS": 1, "timeoutS": LIMIT_S}
    run = node.start(
        terminationGraceS=0, containers=[container("a", "exec sleep 1000", env=own, readinessProbe=probe)]
    )
    report = run.wait_for(lambda report: state_of(report, "a").ready or "Unhealthy" in reasons(report, "a"))
    assert "Unhealthy" not in reasons(report, "a")
    run.delete()
    run.wait()


def test_a_session_needs_no_env_in_the_image(programs: Path) -> None:
    values = {b"LD_LIBRARY_PATH": b"/.singularity.d/libs", b"A": b"b"}
    bare = places.enter(os.getpid(), {**values, b"PATH": os.fsencode(programs)})
    assert (bare.enter[-1], bare.environment[b"A"]) == (b"--", b"b")
    assert b"LD_LIBRARY_PATH" not in bare.environment
    assert b"env" in places.enter(os.getpid(), values).enter
    (programs / "env").symlink_to("/bin/busybox-of-the-image")
    assert has_setter(os.getpid(), f"relative:{programs}")
