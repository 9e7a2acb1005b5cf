"""A pod's emptyDir on a node without its runner, where users of the runner's node know the folder's name."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from redbox.runner.program.steps import run_cleanup
from redbox.runner.program.volumes import make_on_this_node


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "redbox-pod-7-1-aa"


def test_it_is_the_users_alone(scratch: Path) -> None:
    for _ in range(2):  # by each rank of the node
        make_on_this_node(str(scratch / "volumes/v"))
    assert (scratch / "volumes/v").is_dir()
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700


def test_a_folder_that_others_may_enter_is_not_used(scratch: Path) -> None:
    scratch.mkdir()
    scratch.chmod(0o777)
    with pytest.raises(PermissionError, match="not this user's alone"):
        make_on_this_node(str(scratch / "volumes/v"))
    assert not list(scratch.iterdir())


def test_a_link_in_its_place_is_not_followed(scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    scratch.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="redbox-pod"):
        make_on_this_node(str(scratch / "volumes/v"))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_cleanup_removes_it_and_takes_one_that_is_gone(scratch: Path) -> None:
    make_on_this_node(str(scratch / "volumes/v"))
    for _ in range(2):
        assert run_cleanup(str(scratch)) == 0
    assert not scratch.exists()
