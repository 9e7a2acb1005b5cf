"""A release is the same bytes twice, and holds what it says."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from redbox_bed.core.errors import BedError
from redbox_bed.core.places import CHECKOUT
from redbox_bed.images.node_images import architecture
from redbox_release.artifacts.environment import PYTHONS, SITE_PACKAGES, overlay
from redbox_release.artifacts.release import build_release
from redbox_release.artifacts.sbom import locked_packages
from redbox_release.artifacts.source import Source
from tests.release.release_files import build, release_files

pytestmark = pytest.mark.timeout(900)  # wheels for four versions of Python come first, once


@pytest.fixture(scope="module")
def files() -> Path:
    return release_files()


@pytest.mark.nightly
def test_twice_gives_the_same_bytes(files: Path, tmp_path: Path) -> None:
    build(tmp_path / "again")
    first, again = (
        {path.name: _digest(path) for path in folder.iterdir()} for folder in (files, tmp_path / "again")
    )
    assert first == again
    assert len(first) == 8


def test_the_checksums_are_those_of_the_files(files: Path) -> None:
    lines = (files / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    assert listed == {path.name: _digest(path) for path in files.iterdir() if path.name != "SHA256SUMS"}


def test_every_file_has_the_commits_time_and_is_roots(files: Path) -> None:
    (tarball,) = files.glob("*-login-node-*.tar.gz")
    with tarfile.open(tarball) as archive:
        members = archive.getmembers()
    assert {(member.uid, member.gid, member.mtime) for member in members} == {
        (0, 0, Source.of_checkout().epoch)
    }
    assert not [member.name for member in members if member.mode & 0o022 and not member.issym()]


@pytest.mark.nightly
def test_the_environment_runs_where_it_is_put_with_this_python(files: Path, tmp_path: Path) -> None:
    (tarball,) = files.glob("*-login-node-*.tar.gz")
    with tarfile.open(tarball) as archive:
        archive.extractall(tmp_path, filter="fully_trusted")
    (unpacked,) = tmp_path.iterdir()
    environ = os.environ | {"PYTHON": sys.executable}
    subprocess.run([unpacked / "install", tmp_path / "first"], check=True, env=environ, timeout=300)
    moved = (tmp_path / "first").rename(tmp_path / "second")
    said = subprocess.run(
        [moved / "bin/redbox", "openapi"], check=True, capture_output=True, text=True, timeout=120
    )
    assert json.loads(said.stdout) == json.loads((CHECKOUT / "docs/reference/openapi.json").read_text())
    library = unpacked / "redbox" / SITE_PACKAGES
    for python in PYTHONS:
        tag = python.replace(".", "")
        assert list(library.glob(f"httptools/parser/parser.cpython-{tag}-*.so")), (
            f"httptools has no module for Python {python}"
        )


def test_the_package_brings_what_redbox_says_itself(files: Path, tmp_path: Path) -> None:
    (package,) = files.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path], check=True, timeout=300)
    said = subprocess.run(
        [Path(sys.executable).with_name("redbox"), "sudoers"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (tmp_path / "etc/sudoers.d/redbox").read_text() == said.stdout
    assert (tmp_path / "etc/sudoers.d/redbox").stat().st_mode & 0o777 == 0o440
    unit = (tmp_path / "usr/lib/systemd/system/redbox.service").read_text()
    assert "ExecStart=/usr/bin/redbox serve\n" in unit
    assert "redbox init" not in unit
    assert (tmp_path / "usr/libexec/redbox/agent").stat().st_mode & 0o777 == 0o755


def test_the_bill_of_materials_has_each_package_that_is_installed(files: Path) -> None:
    (bill,) = files.glob("*.cdx.json")
    components = {(one["name"], one["version"]) for one in json.loads(bill.read_text())["components"]}
    (tarball,) = files.glob("*-login-node-*.tar.gz")
    with tarfile.open(tarball) as archive:
        installed = {
            tuple(name.split("/")[-2].removesuffix(".dist-info").rsplit("-", 1))
            for name in archive.getnames()
            if name.endswith(".dist-info/METADATA")
        }
    assert len(installed) > 30
    normal = {(name.replace("_", "-").lower(), version) for name, version in installed} - {
        ("red-box", "0.1.0")
    }
    assert normal <= {(name.replace("_", "-").lower(), version) for name, version in components}


@pytest.mark.parametrize(
    ("name", "title"),
    [("chart", "red-box"), ("chart-personal", "red-box-personal"), ("chart-slurm", "red-box-slurm")],
)
def test_the_charts_are_the_checkouts(files: Path, name: str, title: str) -> None:
    (chart,) = files.glob(f"*-{name}.tgz")
    with tarfile.open(chart) as archive:
        text = archive.extractfile(f"{title}/Chart.yaml")
        assert text is not None
        assert text.read() == (CHECKOUT / "deploy" / name / "Chart.yaml").read_bytes()
        assert f"{title}/README.md.in" not in archive.getnames()


def test_the_wheel_has_the_program(files: Path) -> None:
    (wheel,) = files.glob("*.whl")
    assert "redbox/__main__.py" in zipfile.ZipFile(wheel).namelist()


def test_two_versions_of_a_module_are_not_mixed(tmp_path: Path) -> None:
    for folder, content in (("one", "1"), ("two", "2")):
        (tmp_path / folder / "p").mkdir(parents=True)
        (tmp_path / folder / "p/module.py").write_text(content)
    overlay(tmp_path / "one", tmp_path / "target")
    with pytest.raises(BedError, match=r"p/module\.py differs between versions of Python"):
        overlay(tmp_path / "two", tmp_path / "target")


@pytest.mark.parametrize(
    ("machine", "images", "sentence"),
    [
        ("sparc", False, "no packages for sparc: only for amd64 and arm64"),
        ("arm64" if architecture() == "amd64" else "amd64", True, "use --no-images"),
    ],
)
def test_another_machine_gets_packages_alone_and_no_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, machine: str, images: bool, sentence: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(BedError, match=sentence):
        build_release(tmp_path / "dist", images=images, progress=lambda _: None, machine=machine)
    assert not (tmp_path / "dist").exists()


def test_a_wrong_time_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(BedError, match="SOURCE_DATE_EPOCH is 'yesterday'"):
        Source.of_checkout()


def test_a_lock_is_read_with_its_hashes() -> None:
    digest = "0" * 64
    found = [
        *locked_packages(
            f"a-b==1.2 ; sys_platform == 'linux' \\\n    --hash=sha256:{digest}\n    # via c\nc==3 \\\n"
        )
    ]
    assert [(one.name, one.version, one.hashes) for one in found] == [
        ("a-b", "1.2", (digest,)),
        ("c", "3", ()),
    ]


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
