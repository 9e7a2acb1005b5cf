"""A secret is private where no other account can read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from redbox.core.secret_files import is_private


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (0o400, True),
        (0o600, True),
        (0o440, True),
        (0o640, True),
        (0o660, False),
        (0o444, False),
        (0o604, False),
    ],
)
def test_a_mode_of_a_file_of_this_group(tmp_path: Path, mode: int, expected: bool) -> None:  # noqa: FBT001
    path = tmp_path / "secret"
    path.touch()
    os.chown(path, -1, os.getegid())
    path.chmod(mode)
    assert is_private(path.stat()) is expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to another group")
def test_another_group_reads_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch()
    os.chown(path, -1, os.getegid() + 4242)
    path.chmod(0o440)
    assert not is_private(path.stat())
