"""A registry of container images, built from the Go module beside this package.

Only tests of images run one: it is built when the first of them asks, in a minute and a half on two cores.
"""

from __future__ import annotations

from pathlib import Path

from redbox_bed.build_cache import contents_of, ensure_built, key_of
from redbox_bed.golang import Build, Progress, find_go, go_version_text
from redbox_bed.places import PACKAGE, Places

MODULE = PACKAGE.parent / "registry"


def ensure_registry(places: Places, progress: Progress) -> Path:
    """The program."""
    go = find_go(places, progress)
    key = key_of(contents_of(MODULE, "*.go", "go.mod", "go.sum"), go_version_text(go))
    log = places.cache / "registry" / f"{key}.log"
    build = Build("the registry", MODULE, log, "some 400", progress)
    folder = ensure_built(
        places.cache / "registry" / key,
        lambda unfinished: build.run(go, output=unfinished / "registry", package=".", linker_flags="-s -w"),
    )
    return folder / "registry"
