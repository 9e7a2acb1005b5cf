"""The user whom a container sees: real user namespaces of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from redbox.node.program.user_namespaces import (
    find_namespace_bar,
    find_unshare,
    group_file,
    passwd_file,
    with_user_inside,
)
from redbox.runner.program.rules import StartFailed
from redbox.runner.program.starts import PodContext, StartBuilder


def shown_inside(ids: tuple[int, int], folder: Path, script: str) -> list[str]:
    accounts = folder / "passwd", folder / "group"
    for path, content in zip(accounts, (passwd_file(ids, "/home/x"), group_file(ids[1])), strict=True):
        path.write_text(content)
    unshare = find_unshare()
    assert unshare
    words = with_user_inside(
        unshare, ids, {"/etc/passwd": str(accounts[0]), "/etc/group": str(accounts[1])}, ["sh", "-c", script]
    )
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_user_inside_is_one_number_of_the_users_own(tmp_path: Path) -> None:
    lines = shown_inside((1000, 3000), tmp_path, "id -u; id -g; cat /etc/passwd; cat /proc/self/uid_map")
    assert lines[:2] == ["1000", "3000"]
    assert lines[2:4] == ["root:x:0:0:root:/root:/bin/sh", "user:x:1000:3000::/home/x:/bin/sh"]
    assert [(line.split()[0], line.split()[2]) for line in lines[4:]] == [("1000", "1")]


@pytest.mark.parametrize("ids", [(0, 0), (os.getuid(), 7)])
def test_root_and_a_group_alone_are_shown_too(ids: tuple[int, int], tmp_path: Path) -> None:
    assert shown_inside(ids, tmp_path, "id -u; id -g") == [str(number) for number in ids]


def test_a_node_that_cannot_show_another_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    pod = {"name": "p", "namespace": "n", "uid": "u", "paths": {"logs": str(tmp_path)}, "mpi": "pmix"}
    spec = {"name": "main", "image": "/a.sif", "command": ["true"], "runAsUser": 1, "readOnlyRoot": True}
    context = PodContext(pod, str(tmp_path), "n1", "10.0.0.1")
    builder = StartBuilder(context, spec, "init")
    with pytest.raises(StartFailed, match="node n1 cannot show a container another user"):
        builder._with_user_inside(["apptainer"], "/")


@pytest.mark.parametrize("setting", ["user/max_user_namespaces", "kernel/unprivileged_userns_clone"])
def test_a_node_that_refuses_user_namespaces_is_found(tmp_path: Path, setting: str) -> None:
    (tmp_path / setting).parent.mkdir()
    (tmp_path / setting).write_text("1\n")
    assert find_namespace_bar(str(tmp_path)) is None
    (tmp_path / setting).write_text("0\n")
    assert find_namespace_bar(str(tmp_path)) == setting.replace("/", ".")
