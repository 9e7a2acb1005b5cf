"""Credentials of a registry: read by the pull alone, from a folder of the job's user, and gone afterwards."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings

from redbox.slurm.submit.container_script import (
    NO_IMAGE,
    ContainerPaths,
    build_container_script,
    credentials_file,
)
from redbox_api.job_parts import RegistryCredentials
from tests.redbox.slurm.submit.container_node import Node
from tests.redbox.slurm.submit.test_container_script import request, words

SECRET = "p'a\"s $(id)\nword"
REGISTRY = {"username": "me", "password": SECRET}


def with_credentials(node: Node) -> tuple[str, Path]:
    asked = request("docker://registry/app:1.2", registry=REGISTRY)
    folder = node.folder / "job" / ".redbox-12345678"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "registry.sh"
    assert asked.container is not None
    assert asked.container.registry is not None
    file.write_bytes(credentials_file(asked.container.registry))
    return build_container_script(asked, ContainerPaths(str(node.folder / "cache"), str(file))), file


def test_credentials_reach_the_pull_alone_and_are_gone_when_the_container_runs(node: Node) -> None:
    script, file = with_credentials(node)
    assert SECRET not in script
    assert node.run(script).returncode == 0
    pull, run = node.calls()
    assert pull["credentials"] == {
        "APPTAINER_DOCKER_USERNAME": "me",
        "APPTAINER_DOCKER_PASSWORD": SECRET,
        "SINGULARITY_DOCKER_PASSWORD": SECRET,
    }
    assert set(run["credentials"].values()) == {None}  # type: ignore[attr-defined]
    assert not file.parent.exists()
    assert SECRET not in json.dumps([pull["argv"], run["argv"]])


def test_credentials_are_removed_also_when_the_pull_fails(node: Node) -> None:
    script, file = with_credentials(node)
    assert node.run(script, PULL_FAILS="1").returncode == NO_IMAGE
    assert not file.exists()


@pytest.mark.parametrize("theirs", ["folder", "link"])
def test_no_credentials_are_read_from_a_folder_that_others_have_put_there(node: Node, theirs: str) -> None:
    """In a directory of a group: its name follows from the job's comment, and is free once a task ran."""
    script, file = with_credentials(node)
    assert node.run(script).returncode == 0
    lair = file.parent if theirs == "folder" else node.folder / "lair"
    lair.mkdir()
    (lair / file.name).write_text(f"touch {node.folder}/entered\n")
    (lair / file.name).chmod(0o644)
    if theirs == "link":
        file.parent.symlink_to(lair)
    elif os.geteuid() == 0:
        os.chown(lair, 65534, 65534)
    else:
        pytest.skip("only root gives a folder away")
    for image in (node.folder / "cache").glob("*.sif"):  # as on another node, or where it is always pulled
        image.unlink()
    assert node.run(script).returncode == 0
    assert not (node.folder / "entered").exists()


def test_a_later_task_of_the_array_runs_the_image_that_the_first_has_pulled(node: Node) -> None:
    script, _ = with_credentials(node)
    assert node.run(script).returncode == 0
    assert node.run(script).returncode == 0


@settings(max_examples=50)
@given(words.filter(lambda text: "\r" not in text), words)
def test_any_password_survives_its_file(username: str, password: str) -> None:
    file = credentials_file(
        RegistryCredentials.model_construct(username=username, password=_secret(password))
    )
    show = b'\nprintf "%s\\0%s" "$APPTAINER_DOCKER_USERNAME" "$SINGULARITY_DOCKER_PASSWORD"'
    shown = subprocess.run(
        ["/bin/sh"], input=file + show, capture_output=True, check=True, env=dict(os.environ)
    )
    assert shown.stdout == f"{username}\0{password}".encode()


def _secret(text: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
    return RegistryCredentials.model_validate({"username": "", "password": text}).password
