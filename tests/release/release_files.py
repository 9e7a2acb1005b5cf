"""The release of this checkout without its images, built once for all tests that look at it or install it."""

from __future__ import annotations

import time
import tomllib
from functools import partial
from pathlib import Path

from redbox_bed.core.build_cache import contents_of, ensure_built, forget_unused, key_of
from redbox_bed.core.places import CHECKOUT, Places
from redbox_release.artifacts.release import build_release
from redbox_release.artifacts.source import Source

KEPT_S = 24 * 3600  # each change leaves 130 MB
FOLDERS = ("deploy/release", "deploy/chart", "deploy/chart-personal", "deploy/chart-slurm")
SINGLE = (
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "deploy/manifests.yaml",
    "deploy/local/server.lock",
)


def release_files() -> Path:
    """Its folder in the cache."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    sources = b"".join(contents_of(CHECKOUT / folder, "*") for folder in (*packages, *FOLDERS))
    singles = b"".join((CHECKOUT / file).read_bytes() for file in SINGLE)
    key = key_of(sources, singles, str(Source.of_checkout().epoch))
    shelf = Places.of().cache / "release"
    forget_unused(shelf, "files-*", time.time() - KEPT_S)
    return ensure_built(shelf / f"files-{key}", build)


build = partial(build_release, images=False, progress=lambda _: None)
