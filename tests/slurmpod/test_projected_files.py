"""Files as the kubelet projects them."""

from pathlib import Path

import pytest

from redbox_slurmpod.projected_files import copy_private, digests, read_files
from tests.slurmpod.kubelet import project


def test_projected_files_are_read_without_the_kubelets_own_links(tmp_path: Path) -> None:
    project(tmp_path, {"slurm.conf": b"ClusterName=a", "gres.conf": b""})
    assert read_files(tmp_path) == {"slurm.conf": b"ClusterName=a", "gres.conf": b""}
    project(tmp_path, {"slurm.conf": b"ClusterName=b"})
    assert read_files(tmp_path) == {"slurm.conf": b"ClusterName=b"}


def test_a_plain_folder_is_read_with_its_folders(tmp_path: Path) -> None:
    (tmp_path / "plug").mkdir()
    (tmp_path / "plug" / "a").write_text("x")
    assert read_files(tmp_path) == {"plug/a": b"x"}
    assert digests(tmp_path)["plug/a"].startswith("2d711642")


def test_a_folder_that_is_absent_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_files(tmp_path / "absent")


def test_a_version_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, {"slurm.conf": b"old"})
    read_bytes = Path.read_bytes

    def replaced(path: Path) -> bytes:
        monkeypatch.setattr(Path, "read_bytes", read_bytes)
        project(tmp_path, {"slurm.conf": b"new"})
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", replaced)
    assert read_files(tmp_path) == {"slurm.conf": b"new"}


def test_copies_are_their_owners_alone_and_replace_those_of_the_container_before(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "run" / "conf"
    project(source, {"slurmdbd.conf": b"StoragePass=old"})
    copy_private(source, target)
    (target / "slurmdbd.conf").chmod(0o644)
    project(source, {"slurmdbd.conf": b"StoragePass=new"})
    copy_private(source, target)
    assert (target / "slurmdbd.conf").read_bytes() == b"StoragePass=new"
    assert (target / "slurmdbd.conf").stat().st_mode & 0o777 == 0o600
    assert target.stat().st_mode & 0o777 == 0o700
