"""Where records lie: what another user of the login node can do to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from redbox.agents.program.command_records import CommandRecordStore, make_private


def test_no_folder_above_the_records_is_writable_for_others_whatever_the_umask_is(tmp_path: Path) -> None:
    """Else they are renamed, and their outcomes are gone."""
    before = os.umask(0)
    try:
        assert make_private(str(tmp_path / ".local/state/redbox-kept"))
    finally:
        os.umask(before)
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3


@pytest.mark.parametrize("planted", ["link", "open folder"])
def test_a_folder_that_another_user_has_put_there_is_neither_read_nor_written(
    tmp_path: Path, planted: str
) -> None:
    store, theirs = CommandRecordStore([str(tmp_path)]), tmp_path / "theirs"
    theirs.mkdir(0o777)
    theirs.chmod(0o777)
    (theirs / "rb1.x").write_text('{"outcome": {"code": 0}}\n')
    if planted == "link":
        theirs.chmod(0o700)
        (tmp_path / "redbox-kept").symlink_to(theirs)
    else:
        theirs.rename(tmp_path / "redbox-kept")
    assert store.recall("rb1.x") == {"state": "not recorded"}
    record = store.begin("rb1.y")
    store.end(record, {"code": 0})
    assert store.recall("rb1.y")["state"] == "ended"
    assert [path.name for path in (tmp_path / "redbox-kept").iterdir()] == ["rb1.x"]
