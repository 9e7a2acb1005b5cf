"""The files of a volume change as a whole, and no link leads their writer out of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from redbox.node.program.atomic_files import VolumeFile, VolumeFiles

Contents = dict[str, bytes]


def replace(
    files: VolumeFiles, contents: Contents, source: int | None = None, *, mode: int = 0o644, of: int = 0
) -> bool:
    entries = [VolumeFile(path, mode, of if source is None else source) for path in contents]
    return files.replace(source, entries, lambda entry, target: _write(target, contents[entry.path]))


def _write(target: int, content: bytes) -> None:
    os.write(target, content)


def shown(volume: Path) -> Contents:
    """What programs find: each name that does not begin with two dots."""
    names = [path for path in sorted(volume.iterdir()) if not path.name.startswith("..")]
    found = [file for name in names for file in ([name] if name.is_file() else sorted(name.rglob("*")))]
    return {str(file.relative_to(volume)): file.read_bytes() for file in found if file.is_file()}


def sets(volume: Path) -> list[str]:
    return sorted(path.name for path in volume.iterdir() if path.name.startswith("..20"))


def made(folder: Path, contents: Contents) -> VolumeFiles:
    files = VolumeFiles(str(folder / "v"))
    assert replace(files, contents)
    return files


def test_a_volume_has_the_layout_of_kubelets(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    made(tmp_path, {"a": b"1", "b/c": b"2"})
    assert shown(volume) == {"a": b"1", "b/c": b"2"}
    assert str((volume / "a").readlink()) == "..data/a"
    assert sets(volume) == [str((volume / "..data").readlink())]
    assert (volume / "b/c").stat().st_mode & 0o777 == 0o644


def test_a_new_set_takes_the_place_of_the_old_one_as_a_whole(tmp_path: Path) -> None:
    volume, files = tmp_path / "v", made(tmp_path, {"a": b"1", "gone": b"x", "b/c": b"2"})
    folder = os.open(volume / "..data/", os.O_RDONLY)
    assert replace(files, {"a": b"new", "d": b"4"}, 0, mode=0o600)
    assert shown(volume) == {"a": b"new", "d": b"4"}
    assert (volume / "a").stat().st_mode & 0o777 == 0o600
    assert len(sets(volume)) == 1
    assert os.listdir(folder) == []  # noqa: PTH208 (the old set, which has no name any more)
    os.close(folder)


def test_one_source_changes_and_the_files_of_the_others_stay(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    files = VolumeFiles(str(volume))
    entries = [VolumeFile("first", 0o640, 0), VolumeFile("second", 0o644, 1)]
    files.replace(None, entries, lambda entry, target: _write(target, entry.path.encode()))
    assert replace(files, {"new": b"n"}, 1)
    assert shown(volume) == {"first": b"first", "new": b"n"}
    assert (volume / "first").stat().st_mode & 0o777 == 0o640


def test_of_two_sources_with_one_path_the_later_counts(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    files = VolumeFiles(str(volume))
    entries = [VolumeFile("a", 0o644, 0), VolumeFile("both", 0o644, 1)]
    files.replace(None, entries, lambda _, target: _write(target, b"old"))
    replace(files, {"both": b"of the first", "z": b"after it"}, 0)
    assert shown(volume) == {"both": b"old", "z": b"after it"}
    replace(files, {"z": b"of the second"}, 1)
    assert shown(volume) == {"z": b"of the second"}


def test_the_same_files_again_change_nothing(tmp_path: Path) -> None:
    volume, files = tmp_path / "v", made(tmp_path, {"a": b"1"})
    before = str((volume / "..data").readlink())
    assert not replace(files, {"a": b"1"}, 0)
    assert (str((volume / "..data").readlink()), sets(volume)) == (before, [before])


def test_what_a_sub_path_shows_is_kept(tmp_path: Path) -> None:
    volume, files = tmp_path / "v", made(tmp_path, {"a": b"1"})
    mounted = Path(files.resolve(lambda: os.path.realpath(volume / "a")))
    replace(files, {"a": b"2"}, 0)
    replace(files, {"a": b"3"}, 0)
    assert (mounted.read_bytes(), shown(volume)) == (b"1", {"a": b"3"})
    assert len(sets(volume)) == 2


def test_a_full_disk_leaves_the_old_set(tmp_path: Path) -> None:
    volume, files = tmp_path / "v", made(tmp_path, {"a": b"1"})

    def full(_: VolumeFile, __: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with pytest.raises(OSError, match="quota"):
        files.replace(0, [VolumeFile("a", 0o644, 0)], full)
    assert (shown(volume), len(sets(volume))) == ({"a": b"1"}, 1)


@pytest.mark.parametrize("link", ["..data", "..data_tmp", "a"])
def test_links_that_others_have_put_there_lead_nobody_out(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    (outside / "b").mkdir(parents=True)
    (outside / "a").write_bytes(b"precious")
    volume, files = tmp_path / "v", made(tmp_path, {"a": b"1", "b/c": b"2"})
    (volume / link).unlink(missing_ok=True)
    (volume / link).symlink_to(outside / "a" if link == "a" else outside)
    assert replace(files, {"a": b"new", "b/c": b"new"}, 0)
    assert (outside / "a").read_bytes() == b"precious"
    assert list((outside / "b").iterdir()) == []
    assert str((volume / "..data").readlink()) in sets(volume)


def test_a_volume_that_is_a_link_now_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    volume, files = tmp_path / "v", made(tmp_path, {"a": b"1"})
    volume.rename(tmp_path / "aside")
    volume.symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="Not a directory"):
        replace(files, {"a": b"new"}, 0)
    assert list((tmp_path / "outside").iterdir()) == []


def test_an_old_file_that_is_a_link_now_is_not_copied(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of another volume")
    volume = tmp_path / "v"
    files = VolumeFiles(str(volume))
    entries = [VolumeFile("kept", 0o644, 0), VolumeFile("changed", 0o644, 1)]
    files.replace(None, entries, lambda _, target: _write(target, b"old"))
    target = volume / str((volume / "..data").readlink()) / "kept"
    target.unlink()
    target.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        replace(files, {"changed": b"new"}, 1)
    assert (volume / "changed").read_bytes() == b"old"


@pytest.mark.parametrize("path", ["../a", "a/../../b", "/a", "a//b", "", "..data", "..a/b", "./a"])
def test_a_path_that_leaves_its_volume_or_hides_in_it_is_none(path: str) -> None:
    with pytest.raises(ValueError, match="is not a path in a volume"):
        VolumeFile(path, 0o644, 0)
