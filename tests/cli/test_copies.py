"""What comes from a job is a stranger's archive."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from kubectl_slurm.commands.copies import unpack


def archive(*members: tuple[str, bytes | str]) -> io.BytesIO:
    """Files with their content; a text is the target of a link."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                member.size, member.mode = len(content), 0o6755
                tar.addfile(member, io.BytesIO(content))
    made.seek(0)
    return made


def test_a_folder_arrives_under_the_name_that_was_asked_for(tmp_path: Path) -> None:
    assert unpack(archive(("./out/a.txt", b"a"), ("./out/b/c.txt", b"c")), tmp_path, "out", "mine") == ""
    assert (tmp_path / "mine/a.txt").read_bytes() == b"a"
    assert (tmp_path / "mine/b/c.txt").read_bytes() == b"c"
    assert (tmp_path / "mine/a.txt").stat().st_mode & 0o7000 == 0


@pytest.mark.parametrize(
    "members",
    [
        [("../escaped", b"x")],
        [("/tmp/../escaped", b"x"), ("../../escaped", b"x")],
        [("out", "../.."), ("out/escaped", b"x")],
        [("out", "/etc/passwd")],
    ],
)
def test_nothing_is_written_outside_of_the_target(
    tmp_path: Path, members: list[tuple[str, bytes | str]]
) -> None:
    inside = tmp_path / "a/target"
    inside.mkdir(parents=True)
    assert unpack(archive(*members), inside, "out", None) != ""
    assert not list(tmp_path.rglob("../escaped"))
    assert not (tmp_path / "escaped").exists()
    assert not (tmp_path / "a/escaped").exists()


def test_half_an_archive_is_not_a_copy(tmp_path: Path) -> None:
    whole = archive(("out", b"x" * 100_000)).getvalue()
    assert unpack(io.BytesIO(whole[:50_000]), tmp_path, "out", None) != ""
