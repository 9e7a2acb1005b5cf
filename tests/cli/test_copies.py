"""What comes from a job is a stranger's archive."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import IO, Any

import pytest

from kubectl_slurm.commands.into_jobs.copies import PACK, unpack, upload
from kubectl_slurm.errors import PluginError
from kubectl_slurm.kubectl.program import Kubectl as Program
from kubectl_slurm.slurmjobs.entering import TAINT_SLURM, JobEntry
from tests.cli.factories import slurmjob, view
from tests.cli.harness import Kubectl, run


@pytest.fixture(params=["with Python's filter", "as on Debian 12"], autouse=True)
def _python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has a filter for archives since 3.11.4; before it `extract` takes none, either."""
    if request.param == "as on Debian 12":
        monkeypatch.delattr(tarfile, "data_filter")
        extract = tarfile.TarFile.extract

        def extract_without_filter(
            self: tarfile.TarFile, member: tarfile.TarInfo, path: Path, *, set_attrs: bool
        ) -> None:
            extract(self, member, path, set_attrs, filter="fully_trusted")

        monkeypatch.setattr(tarfile.TarFile, "extract", extract_without_filter)


class HardLink(str):
    """The member to which one leads."""

    __slots__ = ()


def archive(*members: tuple[str, bytes | str]) -> io.BytesIO:
    """Files with their content; a text is the target of a link."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                is_hard = isinstance(content, HardLink)
                member.type, member.linkname = tarfile.LNKTYPE if is_hard else tarfile.SYMTYPE, content
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


@pytest.mark.parametrize("renamed", [None, "mine"])
@pytest.mark.parametrize(
    "members",
    [
        [(".bashrc", b"evil")],
        [("./out/../.bashrc", b"evil")],
        [("outside", b"x")],
        [("out", "."), ("out/.bashrc", b"evil")],
        [("out/up", ".."), ("out/up/.bashrc", b"evil")],
        [("out/rc", "../.bashrc"), ("out/rc", b"evil")],
        [("out/rc", HardLink(".bashrc")), ("out/rc", b"evil")],
        [("out/up", ".."), ("out/rc", HardLink("out/up/.bashrc")), ("out/rc", b"evil")],
        [(f"out/{'x/' * 3000}rc", b"evil")],
        [("out/../\udcff\x1b[2J", b"x")],
    ],
)
def test_nothing_is_written_beside_the_target(
    tmp_path: Path, members: list[tuple[str, bytes | str]], renamed: str | None
) -> None:
    """The destination is often the home directory."""
    (tmp_path / ".bashrc").write_bytes(b"mine")
    assert unpack(archive(*members), tmp_path, "out", renamed).isprintable()
    assert (tmp_path / ".bashrc").read_bytes() == b"mine"
    assert {path.name for path in tmp_path.iterdir()} <= {".bashrc", renamed or "out"}


def test_a_device_is_not_made_and_modes_are_the_users_own(tmp_path: Path) -> None:
    made = archive(("out/a", b"a"))
    with tarfile.open(fileobj=made, mode="a") as tar:
        device = tarfile.TarInfo("out/device")
        device.type = tarfile.FIFOTYPE
        tar.addfile(device)
    made.seek(0)
    assert "out/device" in unpack(made, tmp_path, "out", None)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]
    assert (tmp_path / "out/a").stat().st_mode & 0o7777 == 0o755


def test_links_inside_of_a_folder_arrive(tmp_path: Path) -> None:
    members: list[tuple[str, bytes | str]] = [
        ("./out/a", b"a"),
        ("./out/to-a", "a"),
        ("./out/also-a", HardLink("./out/a")),
    ]
    assert unpack(archive(*members), tmp_path, "out", "mine") == ""
    assert [(tmp_path / "mine" / name).read_bytes() for name in ("a", "to-a", "also-a")] == [b"a"] * 3


def test_a_hard_link_to_a_file_that_does_not_come_is_one_sentence(tmp_path: Path) -> None:
    fault = unpack(archive(("./out/a", HardLink("./out/missing"))), tmp_path, "out", None)
    assert fault == "it has './out/a', a link to a file that did not come before"


def test_the_members_of_an_archive_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder may have a million files."""
    kept: list[int] = []
    extract = tarfile.TarFile.extract

    def counted(self: tarfile.TarFile, *arguments: Any, **options: Any) -> None:
        kept.append(len(self.members))  # type: ignore[attr-defined]
        extract(self, *arguments, **options)

    monkeypatch.setattr(tarfile.TarFile, "extract", counted)
    assert unpack(archive(*((f"./out/{n}", b"x") for n in range(9))), tmp_path, "out", None) == ""
    assert len([*(tmp_path / "out").iterdir()]) == len(kept)
    assert max(kept) <= 1


def test_the_content_of_a_folder_without_a_name_goes_into_the_target(tmp_path: Path) -> None:
    assert unpack(archive(("./a", b"a"), ("./b/c", b"c")), tmp_path, ".", None) == ""
    assert (tmp_path / "b/c").read_bytes() == b"c"


def test_half_an_archive_is_not_a_copy(tmp_path: Path) -> None:
    whole = archive(("out", b"x" * 100_000)).getvalue()
    assert unpack(io.BytesIO(whole[:50_000]), tmp_path, "out", None) != ""


def test_the_folder_of_the_job_arrives_in_one_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"mine")
    assert unpack(archive(("././b/a.txt", b"a")), tmp_path, "", "copied") == ""
    assert (tmp_path / "copied/b/a.txt").read_bytes() == b"a"
    assert (tmp_path / "a.txt").read_bytes() == b"mine"
    assert unpack(archive(("./../a.txt", b"x")), tmp_path / "copied", "", "more") != ""
    assert (tmp_path / "a.txt").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("name", "renamed", "files"),
    [
        ("newest.dat", "newest.dat", {"newest.dat": "3"}),
        ("newest", "mine", {"mine/run.dat": "3", "mine/link.dat": "3"}),
        ("", "all", {"all/three/run.dat": "3", "all/newest.dat": "3"}),
    ],
)
def test_a_link_is_copied_as_what_it_leads_to(
    tmp_path: Path, name: str, renamed: str, files: dict[str, str]
) -> None:
    job, here = tmp_path / "job", tmp_path / "here"
    (job / "three").mkdir(parents=True)
    here.mkdir()
    (job / "three/run.dat").write_text("3")
    (job / "three/link.dat").symlink_to("run.dat")
    (job / "newest").symlink_to("three")
    (job / "newest.dat").symlink_to("three/run.dat")
    packed = subprocess.run(["sh", "-c", PACK, "cp", job, name], capture_output=True, check=True).stdout
    assert unpack(io.BytesIO(packed), here, name, renamed) == ""
    assert {path: (here / path).read_text() for path in files} == files
    assert not (here / renamed).is_symlink()


def test_a_link_is_uploaded_as_what_it_leads_to(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl.answers("job", slurmjob(state="RUNNING"))
    (tmp_path / "run-3.dat").write_text("3")
    (tmp_path / "newest.dat").symlink_to("run-3.dat")
    assert run(kubectl, "cp", str(tmp_path / "newest.dat"), "train-abc12:").returncode == 2
    ended = run(kubectl, "cp", str(tmp_path / "newest.dat"), "train-abc12:.")
    assert ended.returncode == 0, ended.stderr
    with tarfile.open(tmp_path / "answers/uploaded") as tar:
        assert [(member.name, member.isreg()) for member in tar] == [("newest.dat", True)]


@pytest.mark.parametrize("words", [("train-abc12:a", "."), ("a", "train-abc12:.")])
def test_a_program_in_the_job_cannot_change_the_terminal(
    kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("a")
    kubectl.answers("job", slurmjob(state="RUNNING"))
    hostile = "exec*) printf 'tar: \\033[2Jgone\\n' | tee /dev/stderr; cat >/dev/null; exit 2 ;;"
    kubectl.becomes(kubectl.program.read_text().replace('exec*) cat >"$ANSWERS/uploaded" ;;', hostile))
    ended = run(kubectl, "cp", *words)
    assert ended.returncode == 1
    assert "tar: ?[2Jgone\n" in ended.stderr
    assert "\x1b" not in ended.stdout + ended.stderr


def test_a_copy_that_fails_here_ends_though_the_job_has_more_to_send(
    kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "big").write_bytes(bytes(1_000_000))
    (tmp_path / "here/big/in-its-place").mkdir(parents=True)
    kubectl.answers("job", slurmjob(state="RUNNING"))
    sends = f"exec*) tar -cf - -C {tmp_path} ./big; echo 'error: broken pipe' >&2; exit 1 ;;"
    kubectl.becomes(kubectl.program.read_text().replace('exec*) cat >"$ANSWERS/uploaded" ;;', sends))
    ended = run(kubectl, "cp", "train-abc12:big", "here")
    assert ended.returncode == 1
    assert "big was not copied whole: " in ended.stderr


def upload_here(source: Path, target: str, folder: Path) -> None:
    """As into a job, whose files are those of this machine."""
    program = folder / "kubectl"
    program.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    program.chmod(0o755)
    pod = {"spec": {"tolerations": [{"key": TAINT_SLURM}]}}
    upload(Program(str(program)), JobEntry(view(), pod), source, target)


def test_a_folder_that_is_there_gets_the_files_of_the_new_one(tmp_path: Path) -> None:
    source, job = tmp_path / "data", tmp_path / "job"
    (source / "sub").mkdir(parents=True)
    (job / "data/sub").mkdir(parents=True)
    (job / "data/sub/kept").write_text("kept")
    (source / "sub/a").write_text("1")
    upload_here(source, str(job), tmp_path)
    (source / "sub/a").write_text("2")
    upload_here(source, str(job), tmp_path)
    assert (job / "data/sub/a").read_text() == "2"
    assert (job / "data/sub/kept").read_text() == "kept"
    assert [path.name for path in job.iterdir()] == ["data"]


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_source_that_cannot_be_read_whole_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Of another user, or removed meanwhile: what came before it is not kept for the whole."""
    source, job = tmp_path / "data", tmp_path / "job"
    source.mkdir()
    job.mkdir()
    (source / "a").write_bytes(b"x" * size)
    (source / "b").write_text("secret")

    def read(name: str, mode: str) -> IO[bytes]:
        if name.endswith("/b"):
            raise PermissionError(13, "Permission denied", name)
        return open(name, mode)  # noqa: PTH123

    monkeypatch.setattr("tarfile.bltn_open", read)
    with pytest.raises(PluginError, match="Permission denied"):
        upload_here(source, str(job / "new"), tmp_path)
    assert list(job.iterdir()) == []
