"""All files of a release, in one folder, with their checksums."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from redbox_bed.core.commands import run_command
from redbox_bed.core.errors import BedError
from redbox_bed.core.places import CHECKOUT
from redbox_bed.images.contents import FOLDER
from redbox_bed.images.node_images import architecture
from redbox_bed.images.oci import write_archive
from redbox_release.artifacts.archives import compressed, pack_folder
from redbox_release.artifacts.debian import SCRIPTS, build_package
from redbox_release.artifacts.environment import LOCK, MACHINES, write_environment
from redbox_release.artifacts.images import release_images
from redbox_release.artifacts.sbom import bill_of_materials, debian_packages
from redbox_release.artifacts.source import Source
from redbox_release.folders import make_empty

CHECKSUMS = "SHA256SUMS"
_WITHIN_S = 300


def build_release(
    folder: Path, *, images: bool, progress: Callable[[str], object], machine: str = ""
) -> list[Path]:
    """Build everything into `folder`, emptied first; without `images` no root is needed.

    For another machine the wheels of the packages are that one's; images are this machine's Debian.
    """
    if images and os.geteuid() != 0:
        raise BedError(
            "images are built from a Debian root, which needs root: run it as root, or with --no-images"
        )
    if machine not in ("", *MACHINES):
        raise BedError(f"there are no packages for {machine}: only for {' and '.join(MACHINES)}")
    source = Source.of_checkout(machine)
    if images and source.architecture != architecture():
        raise BedError(f"images for {source.architecture} are built on such a machine: use --no-images")
    make_empty(folder, CHECKSUMS)
    progress(f"red-box {source.version} for {source.architecture}")
    with tempfile.TemporaryDirectory(prefix="red-box-release-") as scratch:
        _write_packages(folder, source, Path(scratch), progress)
    _write_chart(folder / f"{source.stem}-chart.tgz", "chart", "red-box", source)
    _write_chart(folder / f"{source.stem}-chart-personal.tgz", "chart-personal", "red-box-personal", source)
    _write_chart(folder / f"{source.stem}-chart-slurm.tgz", "chart-slurm", "red-box-slurm", source)
    shutil.copyfile(CHECKOUT / "deploy/manifests.yaml", folder / f"{source.stem}-manifests.yaml")
    locks = {"login-node": LOCK}
    debian: set[tuple[str, str]] = set()
    if images:
        progress("images")
        locks["controllers"] = FOLDER / "controllers.lock"
        for image in release_images(source.version):
            stem = f"{image.archive}-{source.version}-{source.architecture}"
            with compressed(folder / f"{stem}.oci.tar.gz") as output:
                write_archive(image.image, output)
            debian |= debian_packages(image.debian / "tree")
    (folder / f"{source.stem}.cdx.json").write_text(bill_of_materials(source, locks, debian))
    return _write_checksums(folder)


def _write_packages(folder: Path, source: Source, scratch: Path, progress: Callable[[str], object]) -> None:
    progress("wheel")
    wheel = _build_wheel(folder, source)
    progress("environment for login nodes")
    environment = scratch / "tarball" / "redbox"
    write_environment(environment, wheel, source.architecture)
    progress("tarball")
    shutil.copy(SCRIPTS / "install", environment.parent / "install")
    stem = f"{source.stem}-login-node-{source.architecture}"
    pack_folder(folder / f"{stem}.tar.gz", environment.parent, stem, source.epoch)
    progress("Debian package")
    package = folder / f"red-box_{source.version}_{source.architecture}.deb"
    build_package(package, environment, source, scratch)


def _build_wheel(folder: Path, source: Source) -> Path:
    command = (
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(CHECKOUT),
    )
    environ = os.environ | {"SOURCE_DATE_EPOCH": str(source.epoch)}
    run_command(command, "the wheel could not be built", timeout=_WITHIN_S, env=environ)
    return next(folder.glob("*.whl"))


def _write_chart(archive: Path, name: str, title: str, source: Source) -> None:
    """As `helm package` does, which writes the time of the build into its archive."""
    with tempfile.TemporaryDirectory(prefix="red-box-chart-") as scratch:
        ignored = shutil.ignore_patterns(*(CHECKOUT / "deploy" / name / ".helmignore").read_text().split())
        chart = shutil.copytree(CHECKOUT / "deploy" / name, Path(scratch) / "chart", ignore=ignored)
        pack_folder(archive, chart, title, source.epoch)


def _write_checksums(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if path.name != CHECKSUMS)
    lines = []
    for path in files:
        with path.open("rb") as content:
            lines.append(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {path.name}\n")
    (folder / CHECKSUMS).write_text("".join(lines))
    return [*files, folder / CHECKSUMS]
