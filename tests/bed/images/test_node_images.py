"""The list of images, the Dockerfile beside it, and what is read from tools."""

import re
import tomllib
from pathlib import Path

import pytest

from redbox_bed.core.places import CHECKOUT
from redbox_bed.images.contents import FOLDER, Program, read_image_list
from redbox_bed.images.node_images import present_images
from redbox_bed.images.project_images import console_scripts, debian_command, dependencies_command

LISTED = read_image_list()
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
STAGES = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))


def pins(lock: Path) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+(?:\[[a-z,]+\])?==\S+)", lock.read_text(), re.MULTILINE))


def test_the_dockerfile_makes_the_listed_images() -> None:
    assert set(STAGES) - {"base", "build"} == {program.name for program in LISTED.programs}


def test_the_dockerfiles_base_is_the_listed_one() -> None:
    assert re.search(r"^FROM (\S+) AS base", DOCKERFILE, re.MULTILINE)[1] == f"debian:{LISTED.suite}-slim"  # type: ignore[index]
    installed = re.search(r"--no-install-recommends ([^\\]+)", STAGES["base"])
    assert installed is not None
    assert tuple(installed[1].split()) == LISTED.packages
    assert f"\nUSER {LISTED.user}\n" in STAGES["base"]
    assert all(line in STAGES["base"] for line in LISTED.account)
    assert dict(re.findall(r'^ENV (\w+)="(.*)"$', STAGES["base"], re.MULTILINE)) == LISTED.environment
    assert dict(re.findall(r'^LABEL (\S+)="(.*)"$', STAGES["base"], re.MULTILINE)) == LISTED.labels


@pytest.mark.parametrize("program", LISTED.programs, ids=lambda program: program.name)
def test_an_image_of_the_dockerfile_has_the_listed_layers_and_entry_point(program: Program) -> None:
    stage = STAGES[program.name]
    entrypoint = ", ".join(f'"{word}"' for word in program.entrypoint)
    assert f"\nENTRYPOINT [{entrypoint}]\n" in stage
    assert f'title="{program.title}"' in stage
    needed = [Path(program.lock).stem] if program.lock else []
    assert re.findall(r"--from=build /layers/(\S+) /", stage) == [*needed, "project"]


def test_the_dockerfile_has_all_packages_of_the_wheel() -> None:
    """Hatch leaves out one that is not there: its program would not start."""
    wheel = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    copied = re.findall(r"^COPY (\S+) /source/\1$", STAGES["build"], re.MULTILINE)
    assert {package.split("/")[0] for package in wheel["packages"]} == set(copied)


@pytest.mark.parametrize("lock", sorted({program.lock for program in LISTED.programs if program.lock}))
def test_images_have_the_versions_that_are_tested(lock: str) -> None:
    assert pins(FOLDER / lock)
    assert pins(FOLDER / lock) <= pins(CHECKOUT / "requirements.lock"), "run `make lock`"


def test_dependencies_are_for_the_images_python_and_are_checked() -> None:
    command = dependencies_command(LISTED, FOLDER / "controllers.lock", Path("/library"))
    assert "--require-hashes" in command
    assert command[command.index("--python-version") + 1] == LISTED.python


def test_the_base_has_the_listed_packages_from_the_machines_mirror() -> None:
    command = debian_command(
        LISTED.suite, LISTED.packages, Path("/tree"), "http://mirror.example/debian", None
    )
    assert f"--include={','.join(LISTED.packages)}" in command
    assert command[-3:] == [LISTED.suite, "/tree", "http://mirror.example/debian"]


def test_a_wheels_programs_become_scripts_that_trust_no_environment() -> None:
    (script,) = console_scripts("[console_scripts]\nredbox-companion = redbox_companion.__main__:main\n")
    assert script.path == "usr/local/bin/redbox-companion"
    assert script.mode == 0o755
    assert script.content.decode().splitlines() == [
        "#!/usr/bin/python3 -I",
        "import sys",
        "from redbox_companion.__main__ import main",
        "sys.exit(main())",
    ]


def test_images_that_containerd_has_are_read_with_their_digests() -> None:
    listing = (
        "REF                 TYPE                                       DIGEST     SIZE    PLATFORMS\n"
        "bed.local/pause:1   application/vnd.oci.image.manifest.v1+json sha256:aaa 1.4 MiB linux/amd64\n"
    )
    assert present_images(listing) == {"bed.local/pause:1": "sha256:aaa"}
    assert present_images("REF TYPE DIGEST SIZE PLATFORMS LABELS\n") == {}
