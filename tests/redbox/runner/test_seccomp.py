"""seccompProfile RuntimeDefault. Real Apptainer, which makes the filter, runs on the bed only."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redbox.runner.program.command_lines import container_command, seccomp_profile


def test_the_profile_allows_all_but_what_it_names_so_that_new_calls_work() -> None:
    profile = json.loads(seccomp_profile("x86_64"))
    assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
    (rule,) = profile["syscalls"]
    assert {"keyctl", "bpf", "unshare", "mount"} <= set(rule["names"])
    assert not {"clone", "clone3", "ptrace", "futex"} & set(rule["names"])
    assert "SCMP_ARCH_X86" in profile["architectures"]
    assert "architectures" not in json.loads(seccomp_profile("riscv64"))


@pytest.mark.parametrize(("seccomp", "words"), [(None, []), ("/p.json", ["--security", "seccomp:/p.json"])])
def test_apptainer_is_given_it_for_those_that_ask(seccomp: str | None, words: list[str]) -> None:
    common: dict[str, Any] = {"overlay": None, "cwd": "/", "home": "/", "hostname": "", "mounts": []}
    command = container_command("apptainer", "i.sif", ["true"], gpus=None, seccomp=seccomp, **common)
    assert [word for word in command if word.startswith(("--security", "seccomp:"))] == words
