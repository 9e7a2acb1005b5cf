"""Which image is of which release."""

from __future__ import annotations

import pytest

from redbox_hosting.build.config.releases import SlurmRelease, UnknownRelease, release_of


@pytest.mark.parametrize(
    "image",
    ["slurm:26.05", "registry:5000/a/slurm:26.05.5", "slurm:26.05-1", "slurm:26.05@sha256:" + "a" * 64],
)
def test_the_tag_begins_with_the_release(image: str) -> None:
    assert release_of(image) is SlurmRelease("26.05")


@pytest.mark.parametrize(
    "image", ["", "slurm", "slurm:latest", "slurm:26.050", "slurm:99.01", "registry:26.05/slurm", "x" * 4096]
)
def test_another_tag_is_refused_with_those_that_there_are(image: str) -> None:
    with pytest.raises(UnknownRelease, match=r"no tag that begins with .*26\.05: name one that has$"):
        release_of(image)
