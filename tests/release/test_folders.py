"""A build empties its own folder, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from redbox_bed.core.errors import BedError
from redbox_release.folders import make_empty


def test_an_earlier_build_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "dist"
    make_empty(folder, "SHA256SUMS")
    (folder / "old.whl").touch()
    make_empty(folder, "SHA256SUMS")
    assert [path.name for path in folder.iterdir()] == ["SHA256SUMS"]


def test_a_folder_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BedError, match="name an empty folder"):
        make_empty(tmp_path, "SHA256SUMS")
    assert (tmp_path / "thesis.tex").exists()
