"""Debian's MariaDB as an image, for a hosted Slurm's accounting; made once when a test asks for it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from redbox_bed.core.build_cache import ensure_built, key_of
from redbox_bed.core.commands import run_command
from redbox_bed.core.places import Places
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.roots import ISOLATED, machine_mirror, machine_proxy
from redbox_bed.images.node_images import REGISTRY, architecture
from redbox_bed.images.oci import Image, read_layer, write_layer
from redbox_bed.images.project_images import CLEAN, PATH, debian_command

SUITE = "trixie"
PACKAGES = ("mariadb-server",)
# What the package installs for the machine on which it is.
FORGET = 'rm -rf "$1"/var/lib/mysql/*'
_BUILD_SECONDS = 900


def mariadb_image(places: Places, progress: Progress) -> Image:
    """`bed.local/mariadb:dev`."""
    folder = places.cache / "images" / f"mariadb-{key_of(repr((SUITE, PACKAGES, CLEAN, FORGET)))}"
    if not folder.is_dir():
        progress("making the image of MariaDB, once")
    return Image(
        name=f"{REGISTRY}/mariadb:dev",
        architecture=architecture(),
        layers=(read_layer(ensure_built(folder, _build) / "layer.tar"),),
        entrypoint=("mariadbd",),
        environment={"PATH": PATH},
    )


def _build(folder: Path) -> None:
    tree = folder / "tree"
    run = partial(
        run_command, failure="the image of MariaDB could not be built", timeout=_BUILD_SECONDS, cwd="/"
    )
    run([*ISOLATED, *debian_command(SUITE, PACKAGES, tree, machine_mirror(), machine_proxy())])
    run(["sh", "-ec", CLEAN, "clean", str(tree)])
    run(["sh", "-ec", FORGET, "forget", str(tree)])
    write_layer(folder / "layer.tar", tree)
