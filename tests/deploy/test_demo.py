"""What the demo says to those who cannot have it now: one sentence, and nothing made."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from redbox_bed.core.places import CHECKOUT

DEMO = CHECKOUT / "deploy" / "demo"


def ask(*before: str, bed: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"BED_DIR": str(bed), **environment}
    return subprocess.run(
        [*before, str(DEMO)], check=False, capture_output=True, text=True, timeout=90, env=env
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_without_root_it_says_so(tmp_path: Path) -> None:
    # It may read a checkout below root's home, which is closed to others.
    may_read = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    ended = ask(
        "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *may_read, bed=tmp_path / "bed"
    )
    assert ended.returncode == 1
    assert ended.stderr == "demo: it makes namespaces and control groups: run it as root\n"
    assert not (tmp_path / "bed").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as the demo does")
def test_a_second_demo_at_once_says_so(tmp_path: Path) -> None:
    with DEMO.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ended = ask(bed=tmp_path / "bed")
    assert ended.returncode == 1
    assert ended.stderr.startswith("demo: another demo of this checkout is at work")
    assert not (tmp_path / "bed").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as the demo does")
def test_a_kubeconfig_that_points_nowhere_is_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "no-such-file"
    ended = ask(bed=tmp_path / "bed", BED_KUBE="existing", KUBECONFIG=str(nowhere), BED_PORT_OFFSET="19000")
    assert ended.returncode == 1
    assert str(nowhere) in ended.stderr
    assert len([line for line in ended.stderr.splitlines() if line.startswith("bed: ")]) == 1
    assert not (tmp_path / "bed").exists()
