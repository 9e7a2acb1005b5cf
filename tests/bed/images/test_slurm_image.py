"""The list of the Slurm image, the Dockerfile beside it, and what is of ours in the image."""

import os
import re
from pathlib import Path

import pytest

from redbox_bed.core.places import CHECKOUT
from redbox_bed.images.slurm_image import FILES, SLURM_FOLDER, our_files, read_releases

RELEASES = read_releases()
DOCKERFILE = (SLURM_FOLDER / "Dockerfile").read_text()
STAGES = dict(re.findall(r"^FROM (\S+ AS \S+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))


def test_the_dockerfile_has_the_listed_releases() -> None:
    listed = {f"debian:{each.suite}-slim AS slurm-{release}" for release, each in RELEASES.items()}
    assert set(STAGES) == listed


@pytest.mark.parametrize("release", RELEASES)
def test_the_dockerfile_makes_the_listed_image(release: str) -> None:
    listed = RELEASES[release]
    stage = STAGES[f"debian:{listed.suite}-slim AS slurm-{release}"]
    installed = re.search(r"--no-install-recommends (.*?) && rm", stage.replace("\\\n", ""), re.DOTALL)
    assert installed is not None
    assert installed[1].split() == [*listed.slurm, *listed.packages]
    assert f"\nCOPY {FILES.relative_to(CHECKOUT)} /\n" in stage
    assert f"\nCOPY operator/redbox_slurmpod /{listed.library}/redbox_slurmpod\n" in stage
    entrypoint = ", ".join(f'"{word}"' for word in listed.entrypoint)
    assert f"\nENTRYPOINT [{entrypoint}]\n" in stage
    labels = {**listed.labels, "org.opencontainers.image.title": listed.title}
    assert dict(re.findall(r'^LABEL (\S+)="(.*)"$', stage, re.MULTILINE)) == labels


@pytest.mark.parametrize("release", RELEASES)
def test_all_of_slurm_is_one_version_of_its_release(release: str) -> None:
    versions = {package.partition("=")[2] for package in RELEASES[release].slurm}
    assert len(versions) == 1
    assert versions.pop().startswith(f"{release}.")


def test_the_program_starts_from_the_image_and_has_all_its_modules() -> None:
    library = next(iter(RELEASES.values())).library
    entries = {entry.path: entry for entry in our_files(library)}
    assert entries["usr/local/bin/redbox-slurmpod"].mode == 0o755
    assert entries["etc/nsswitch.conf"].mode == 0o644
    package = CHECKOUT / "operator" / "redbox_slurmpod"
    modules = {f"{library}/redbox_slurmpod/{path.relative_to(package)}" for path in package.rglob("*.py")}
    assert modules == {path for path in entries if path.endswith(".py")}
    assert entries["usr/local/bin/redbox-slurmpod"].content.startswith(b"#!/usr/bin/python3 -I\n")


def test_the_programs_file_in_the_checkout_can_be_run() -> None:
    assert os.access(Path(FILES) / "usr/local/bin/redbox-slurmpod", os.X_OK)
