"""A name that a network file system caches as missing is distinguished from a missing one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from redbox.agents.program.files import find_matches, open_for_reading


def errno_of_opening(path: Path) -> int | None:
    with pytest.raises(OSError, match=path.name) as raised:
        open_for_reading(os.fsencode(path))
    return raised.value.errno


def test_a_name_that_only_its_directory_shows_is_to_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "listdir", lambda _: [b"late"])
    assert errno_of_opening(tmp_path / "late") == errno.EAGAIN


@pytest.mark.parametrize("name", ["nowhere", "link", "no-directory/file"])
def test_what_is_missing_is_missing(tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert errno_of_opening(tmp_path / name) == errno.ENOENT


@pytest.mark.parametrize("pattern", ["late", "late*", "**/lat*"])
@pytest.mark.parametrize(
    ("failure", "found"),
    [(errno.ENOENT, [(b"late", None)]), (errno.EACCES, [])],
    ids=["cached as missing", "in a folder that may be listed and not entered"],
)
def test_of_what_cannot_be_looked_up_a_cached_miss_alone_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, failure: int, found: list[object]
) -> None:
    (tmp_path / "late").touch()
    cause = OSError(failure, "its lookup fails", "late")
    lookup = os.lstat

    def late(path: bytes) -> os.stat_result:
        if path.endswith(b"/late"):
            raise cause
        return lookup(path)

    monkeypatch.setattr(os, "lstat", late)
    assert list(find_matches(os.fsencode(tmp_path), [pattern])) == found
