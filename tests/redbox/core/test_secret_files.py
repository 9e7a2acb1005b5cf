"""A secret is private where no other account can read it."""

from __future__ import annotations

import os
import stat

import pytest

from redbox.core.secret_files import is_private

OURS, ANOTHERS = os.geteuid(), os.geteuid() + 1


def status(mode: int, owner: int, group: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, group, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "owner", "expected"),
    [
        (0o400, OURS, True),
        (0o600, OURS, True),
        (0o440, OURS, False),
        (0o640, OURS, False),
        (0o604, OURS, False),
        (0o440, ANOTHERS, True),
        (0o640, ANOTHERS, True),
        (0o660, ANOTHERS, False),
        (0o444, ANOTHERS, False),
    ],
)
def test_only_of_anothers_file_may_the_own_group_read(mode: int, owner: int, *, expected: bool) -> None:
    """A pod's Secret is root's; on a host the file is red-box's own, and its group may be that of all."""
    assert is_private(status(mode, owner, os.getegid())) is expected


def test_another_group_reads_no_secret() -> None:
    assert not is_private(status(0o440, ANOTHERS, os.getegid() + 1))
