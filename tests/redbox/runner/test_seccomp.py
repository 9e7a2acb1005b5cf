"""seccompProfile RuntimeDefault: the profile of Apptainer's packages. Real Apptainer runs on the bed only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redbox.runner.program.command_lines import container_command
from redbox.runner.program.entry import find_seccomp_profile
from tests.redbox.runner.harness import Node, container, end_of

PROFILE = "etc/apptainer/seccomp-profiles/default.json"


def made(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()


def test_the_profile_is_that_of_this_apptainers_packages(tmp_path: Path) -> None:
    made(tmp_path, "usr/bin/apptainer", PROFILE, f"opt/a/{PROFILE}", "opt/a/bin/apptainer")
    system = str(tmp_path / "etc")
    assert find_seccomp_profile(f"{tmp_path}/usr/bin/apptainer", system) == str(tmp_path / PROFILE)
    link = tmp_path / "apptainer"
    link.symlink_to(tmp_path / "opt/a/bin/apptainer")
    assert find_seccomp_profile(str(link), system) == f"{tmp_path}/opt/a/{PROFILE}"
    assert find_seccomp_profile(f"{tmp_path}/usr/bin/singularity", system) is None


@pytest.mark.parametrize(("seccomp", "words"), [(None, []), ("/p.json", ["--security", "seccomp:/p.json"])])
def test_apptainer_is_given_it_for_those_that_ask(seccomp: str | None, words: list[str]) -> None:
    common: dict[str, Any] = {"overlay": None, "cwd": "/", "home": "/", "hostname": "", "mounts": []}
    command = container_command("apptainer", "i.sif", ["true"], gpus=None, seccomp=seccomp, **common)
    assert [word for word in command if word.startswith(("--security", "seccomp:"))] == words


@pytest.mark.parametrize("asked", [True, False])
def test_a_node_without_one_runs_the_pod_and_says_so(node: Node, asked: bool) -> None:  # noqa: FBT001 (a parameter)
    if find_seccomp_profile(str(node.folder / "bin/apptainer")) is not None:
        pytest.skip("this machine has Apptainer's packages")
    report = node.run(containers=[container("a", "true", defaultSeccomp=asked)])
    assert end_of(report, "a") == (0, "Completed")
    assert ("SeccompUnavailable" in [event.reason for event in report.events]) is asked
