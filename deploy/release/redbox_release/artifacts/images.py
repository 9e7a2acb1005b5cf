"""The images of a release: those of our programs, Slurm's for hosted clusters, and their MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from redbox_bed.core.places import Places
from redbox_bed.core.progress import Progress
from redbox_bed.images.contents import read_image_list
from redbox_bed.images.mariadb_image import MARIADB, mariadb_image
from redbox_bed.images.oci import Image
from redbox_bed.images.project_images import Workshop
from redbox_bed.images.slurm_image import debian_of, read_releases, slurm_image


@dataclass(frozen=True)
class ReleasedImage:
    """An image under its name of the release."""

    archive: str
    """The name of its file begins with it."""
    image: Image
    debian: Path
    """The folder of its Debian."""


def release_images(version: str) -> Iterator[ReleasedImage]:
    """One after the other: they are large."""
    places, progress = Places.of(), Progress.silent()
    shelf = places.cache / "images"
    workshop = Workshop(shelf, read_image_list(), progress)
    base = workshop.base()
    project = workshop.project(base)
    for program in workshop.listed.programs:
        image = replace(workshop.image(program, base, project), name=f"{program.name}:{version}")
        yield ReleasedImage(program.name, image, base)
    for release, listed in read_releases().items():
        # The operator reads the release from the beginning of the tag.
        image = replace(slurm_image(places, progress, release), name=f"{listed.name}:{release}-{version}")
        yield ReleasedImage(f"{listed.name}-{release}", image, debian_of(listed).ensure(shelf, progress))
    image = replace(mariadb_image(places, progress), name=f"redbox-mariadb:{version}")
    yield ReleasedImage("redbox-mariadb", image, MARIADB.ensure(shelf, progress))
