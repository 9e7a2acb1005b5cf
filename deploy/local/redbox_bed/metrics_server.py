"""metrics-server, built from the Go module beside this package.

Only a test of `kubectl top` runs one: it is built when that asks, in two to three minutes on two cores. It
demands a newer Go than the rest of the bed.
"""

from __future__ import annotations

from pathlib import Path

from redbox_bed.build_cache import contents_of, ensure_built, key_of
from redbox_bed.golang import Build, Progress, find_go, go_version_text
from redbox_bed.places import PACKAGE, Places

MODULE = PACKAGE.parent / "metrics-server"
PACKAGE_OF_PROGRAM = "sigs.k8s.io/metrics-server/cmd/metrics-server"


def ensure_metrics_server(places: Places, progress: Progress) -> Path:
    """The program."""
    go = find_go(places, progress)
    key = key_of(contents_of(MODULE, "go.mod", "go.sum"), go_version_text(go))
    log = places.cache / "metrics-server" / f"{key}.log"
    build = Build("metrics-server", MODULE, log, "some 600", progress)
    folder = ensure_built(
        places.cache / "metrics-server" / key,
        lambda unfinished: build.run(
            go,
            output=unfinished / "metrics-server",
            package=PACKAGE_OF_PROGRAM,
            linker_flags="-s -w",
        ),
    )
    return folder / "metrics-server"
