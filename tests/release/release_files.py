"""The release of this checkout without its images, built once for all tests that look at it or install it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from redbox_bed.core.build_cache import contents_of, ensure_built, key_of
from redbox_bed.core.places import CHECKOUT, Places
from redbox_release.artifacts.release import build_release
from redbox_release.artifacts.source import Source

SOURCES = ("redbox", "companion", "operator", "resourced", "deploy/release", "deploy/chart")
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
    sources = b"".join(contents_of(CHECKOUT / folder, "*") for folder in SOURCES)
    singles = b"".join((CHECKOUT / file).read_bytes() for file in SINGLE)
    key = key_of(sources, singles, str(Source.of_checkout().epoch))
    return ensure_built(Places.of().cache / "release" / f"files-{key}", build)


build = partial(build_release, images=False, progress=lambda _: None)
