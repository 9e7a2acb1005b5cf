"""Debian's MariaDB as an image, for a hosted Slurm's accounting; made once when a test asks for it.

`deploy/images/mariadb/Dockerfile` makes the same for everybody else, and a test compares the two.
"""

from __future__ import annotations

from redbox_bed.core.places import Places
from redbox_bed.core.progress import Progress
from redbox_bed.images.debian_layer import DebianLayer
from redbox_bed.images.node_images import REGISTRY, architecture
from redbox_bed.images.oci import Image, read_layer
from redbox_bed.images.project_images import PATH

MARIADB = DebianLayer(
    name="mariadb",
    title="the image of MariaDB",
    suite="trixie",
    packages=(("mariadb-server",),),
    forget='rm -rf "$1"/var/lib/mysql/*',
)
ENTRYPOINT = ("mariadbd",)


def mariadb_image(places: Places, progress: Progress) -> Image:
    """`bed.local/mariadb:dev`."""
    return Image(
        name=f"{REGISTRY}/mariadb:dev",
        architecture=architecture(),
        layers=(read_layer(MARIADB.ensure(places.cache / "images", progress) / "layer.tar"),),
        entrypoint=ENTRYPOINT,
        environment={"PATH": PATH},
    )
