"""The Slurm image for pods: what `deploy/images/slurm/contents.toml` lists, with our code of now.

Built in a minute when a test asks for it, and kept in the cache: Debian with Slurm under a hash of the list,
our own files under a hash of theirs.
"""

from __future__ import annotations

import shutil
import time
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from redbox_bed.core.build_cache import ensure_built, forget_unused, key_of
from redbox_bed.core.errors import NotPossibleError
from redbox_bed.core.places import CHECKOUT, Places
from redbox_bed.core.progress import Progress
from redbox_bed.images.contents import FOLDER
from redbox_bed.images.debian_layer import DebianLayer
from redbox_bed.images.node_images import REGISTRY, architecture
from redbox_bed.images.oci import Entry, Image, read_layer, write_layer
from redbox_bed.images.project_images import PATH, compile_library

SLURM_FOLDER = FOLDER / "slurm"
FILES = SLURM_FOLDER / "files"
PROGRAM = CHECKOUT / "operator" / "redbox_slurmpod"
_KEPT_SECONDS = 24 * 3600
# Keys that packages make for the machine on which they are installed.
_KEYS = 'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/munge/munge.key'


@dataclass(frozen=True)
class ListedRelease:
    """One release of the image: all that decides its contents, but for our own files."""

    name: str
    title: str
    release: str
    suite: str
    slurm: tuple[str, ...]
    packages: tuple[str, ...]
    library: str
    entrypoint: tuple[str, ...]
    labels: Mapping[str, str]


def read_releases(folder: Path = SLURM_FOLDER) -> Mapping[str, ListedRelease]:
    listed = tomllib.loads((folder / "contents.toml").read_text())
    return {
        release: ListedRelease(
            name=listed["name"],
            title=listed["title"],
            release=release,
            suite=each["suite"],
            slurm=tuple(
                f"{package}={each['version']}" for package in (*listed["slurm"], *each.get("more", ()))
            ),
            packages=tuple(listed["packages"]),
            library=listed["library"],
            entrypoint=tuple(listed["entrypoint"]),
            labels=listed["labels"],
        )
        for release, each in listed["releases"].items()
    }


def slurm_image(places: Places, progress: Progress, release: str) -> Image:
    """`bed.local/redbox-slurm:RELEASE-dev`."""
    releases = read_releases()
    if release not in releases:
        raise NotPossibleError(f"there is no Slurm image {release}; its releases are: {', '.join(releases)}")
    listed = releases[release]
    shelf = places.cache / "images"
    debian = debian_of(listed).ensure(shelf, progress)
    layers = (debian, _our_files(listed, shelf, debian))
    return Image(
        name=f"{REGISTRY}/{listed.name}:{release}-dev",
        architecture=architecture(),
        layers=tuple(read_layer(folder / "layer.tar") for folder in layers),
        entrypoint=listed.entrypoint,
        environment={"PATH": PATH, "PYTHONUNBUFFERED": "1"},
        labels={**listed.labels, "org.opencontainers.image.title": listed.title},
    )


def debian_of(listed: ListedRelease) -> DebianLayer:
    """Debian with Slurm."""
    return DebianLayer(
        name=f"slurm-{listed.release}",
        title=f"the Slurm image {listed.release}",
        suite=listed.suite,
        packages=(listed.slurm, listed.packages),
        forget=_KEYS,
        compiles_python=True,
    )


def _our_files(listed: ListedRelease, shelf: Path, debian: Path) -> Path:
    entries = our_files(listed.library)
    key = key_of(debian.name, *(f"{entry.path} {entry.mode}".encode() + entry.content for entry in entries))
    forget_unused(shelf, "slurmpod-*", time.time() - _KEPT_SECONDS)
    return ensure_built(shelf / f"slurmpod-{key}", partial(_build_ours, listed, debian, entries))


def _build_ours(listed: ListedRelease, debian: Path, entries: Iterable[Entry], folder: Path) -> None:
    tree = folder / "tree"
    for entry in entries:
        file = tree / entry.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(entry.content)
        file.chmod(entry.mode)
    compile_library(debian / "tree", tree / listed.library, listed.library)
    write_layer(folder / "layer.tar", tree)
    shutil.rmtree(tree)


def our_files(library: str) -> list[Entry]:
    """`files` below the root, and the program's package in Python's library."""
    return [
        *_entries(FILES, ""),
        *_entries(PROGRAM, f"{library}/{PROGRAM.name}/"),
    ]


def _entries(folder: Path, prefix: str) -> Iterable[Entry]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            mode = 0o755 if file.stat().st_mode & 0o100 else 0o644
            yield Entry(f"{prefix}{file.relative_to(folder)}", file.read_bytes(), mode)
