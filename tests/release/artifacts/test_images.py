"""The images of a release."""

from __future__ import annotations

import os

import pytest

from redbox_release.artifacts.images import release_images
from redbox_release.artifacts.sbom import debian_packages


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # Debian with MariaDB comes first, once
@pytest.mark.skipif(os.geteuid() != 0, reason="a Debian root needs root")
def test_hosted_slurm_has_its_images_with_the_packages_that_they_are_of() -> None:
    images = {each.archive: each for each in release_images("0.1.0")}
    assert images["redbox-hosting"].image.name == "redbox-hosting:0.1.0"
    for release in ("24.11", "26.05"):
        slurm = images[f"redbox-slurm-{release}"]
        assert slurm.image.name == f"redbox-slurm:{release}-0.1.0"
        versions = {
            version for name, version in debian_packages(slurm.debian / "tree") if name == "slurmctld"
        }
        assert [version[: len(release)] for version in versions] == [release]
    assert images["redbox-mariadb"].image.name == "redbox-mariadb:0.1.0"
    assert "mariadb-server" in dict(debian_packages(images["redbox-mariadb"].debian / "tree"))
