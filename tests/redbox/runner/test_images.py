"""The cache of images: what is used stays, what nobody uses goes."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from redbox.runner.program import images
from redbox.runner.program.images import (
    CONFIG_NAME,
    DESCRIPTOR,
    HEADER,
    PULLS_LOCK,
    Image,
    ImageStore,
    PullFailed,
    hash_name,
    is_unused,
    pull_cure,
)
from tests.redbox.runner.harness import BOX, Node, container, end_of
from tests.redbox.runner.stand_in import write_sif

DAY_S = 86400


@pytest.mark.parametrize(
    ("message", "has_login", "cure"),
    [
        ("reading manifest none in r/box: manifest unknown", True, ": check the image's name and tag"),
        ("unauthorized: authentication required", False, ": if it exists, give imagePullSecrets"),
        ("requested access to the resource is denied", True, ": check the login of imagePullSecrets"),
        ("dial tcp: lookup r.example: no such host", False, ": Slurm's nodes have to reach the registry"),
        (
            "write /home/a/.apptainer/cache/blob: No space left on device",
            False,
            ": make room in your home, and in the node's directory for temporary files",
        ),
        ("unexpected EOF", False, ""),
    ],
)
def test_a_failure_of_a_registry_has_a_cure(message: str, *, has_login: bool, cure: str) -> None:
    assert pull_cure(message, has_login=has_login) == cure


def make_old(path: Path, days: float = 40) -> Path:
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        write_sif(str(path), {})
    at = time.time() - days * DAY_S
    os.utime(path, (at, at))
    return path


def store(cache: Path, keep_days: int = 30) -> ImageStore:
    return ImageStore(str(cache), "apptainer", {}, {}, threading.Event(), keep_days=keep_days)


def names(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()}


def test_a_pods_end_takes_away_what_was_unused_for_a_month(node: Node) -> None:
    for name in ("old.sif", "old.sif.lock", "broken.sif.17.4", "runner-1.cpython-311-30b.pyc.n1.5", "notes"):
        make_old(node.cache / name)
    make_old(node.cache / "young.sif", days=29)
    assert end_of(node.run(containers=[container("a", "true")]), "a") == (0, "Completed")
    mine = hash_name(BOX) + ".sif"
    assert names(node.cache) == {mine, f"{mine}.lock", PULLS_LOCK, "young.sif", "old.sif.lock", "notes"}


def test_an_image_that_this_pod_uses_is_not_removed_by_it(node: Node) -> None:
    mine = node.cache / (hash_name(BOX) + ".sif")
    node.run(containers=[container("a", "true")])
    make_old(mine)
    node.run(containers=[container("a", "true")])
    assert not is_unused(str(mine), 0)


def test_an_image_that_is_a_link_is_neither_used_nor_replaced(tmp_path: Path) -> None:
    (tmp_path / (hash_name(BOX) + ".sif")).symlink_to(make_old(tmp_path / "planted.sif"))
    for run in (store(tmp_path).find, store(tmp_path).pull):
        with pytest.raises(PullFailed, match="neither yours nor root's"):
            run({"image": BOX})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_an_image_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = make_old(tmp_path / (hash_name(BOX) + ".sif"))
    monkeypatch.setattr(os, "geteuid", lambda: 2001)
    assert store(tmp_path).find({"image": BOX}) is not None  # root's
    os.chown(image, 2002, -1)
    with pytest.raises(PullFailed, match="neither yours nor root's"):
        store(tmp_path).find({"image": BOX})


def test_an_image_of_a_long_pod_counts_as_used_each_day(tmp_path: Path) -> None:
    image = make_old(tmp_path / (hash_name(BOX) + ".sif"))
    running = store(tmp_path)
    running.find({"image": BOX})
    make_old(image)
    running.touch_used()
    store(tmp_path).remove_unused()
    assert image.exists()


def test_an_image_that_another_node_has_just_begun_to_use_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = make_old(tmp_path / "a.sif")

    def rename(old: str, new: str) -> None:
        monkeypatch.undo()
        os.utime(old)  # the other node's touch comes between the look and the rename
        Path(old).rename(new)

    monkeypatch.setattr(os, "rename", rename)
    store(tmp_path).remove_unused()
    assert names(tmp_path) == {image.name}


@pytest.mark.parametrize(("keep_days", "left"), [(0, {"a.sif"}), (41, {"a.sif"}), (39, set())])
def test_the_administrator_says_how_long_images_stay(tmp_path: Path, keep_days: int, left: set[str]) -> None:
    make_old(tmp_path / "a.sif", days=40.5)
    store(tmp_path, keep_days).remove_unused()
    assert names(tmp_path) == left


def test_nothing_but_files_is_removed(tmp_path: Path) -> None:
    kept = make_old(tmp_path / "elsewhere" / "kept")
    (tmp_path / "linked.sif").symlink_to(kept)
    (tmp_path / "folder.sif").mkdir()
    os.mkfifo(tmp_path / "pipe.sif")
    for name in ("folder.sif", "pipe.sif"):
        make_old(tmp_path / name)
    store(tmp_path).remove_unused()
    assert names(tmp_path) == {"elsewhere", "linked.sif", "folder.sif", "pipe.sif"}


def pulling(folder: Path, right: str) -> ImageStore:
    """From a registry that gives its image to one user, and writes who asks."""
    write_sif(f"{folder}/image", {})
    runtime = folder / "apptainer"
    runtime.write_text(
        f'#!/bin/sh\necho "$APPTAINER_DOCKER_USERNAME" >>{folder}/asked\n'
        f'[ "$APPTAINER_DOCKER_USERNAME" = "{right}" ] && exec cp {folder}/image "$4"\n'
        f'echo "FATAL: denied to $APPTAINER_DOCKER_USERNAME"; exit 255\n'
    )
    runtime.chmod(0o755)
    registries = {"docker.io": [{"username": user, "password": "p"} for user in ("bob", "alice", "eve")]}
    return ImageStore(f"{folder}/cache", str(runtime), dict(os.environ), registries, threading.Event())


def test_several_logins_for_a_registry_are_tried_until_one_is_accepted(tmp_path: Path) -> None:
    pulling(tmp_path, "alice").pull({"image": BOX})
    assert (tmp_path / "asked").read_text().split() == ["bob", "alice"]


def test_where_no_login_is_accepted_the_last_refusal_is_shown(tmp_path: Path) -> None:
    with pytest.raises(PullFailed, match="denied to eve: check the login of imagePullSecrets"):
        pulling(tmp_path, "carol").pull({"image": BOX})


def test_a_failure_behind_an_accepted_login_is_shown_whatever_later_logins_are_told(tmp_path: Path) -> None:
    store = pulling(tmp_path, "carol")
    runtime = tmp_path / "apptainer"
    known = '[ "$APPTAINER_DOCKER_USERNAME" = alice ] && echo "FATAL: manifest unknown" && exit 255'
    runtime.write_text(runtime.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{known}\n"))
    with pytest.raises(PullFailed, match=r"^manifest unknown: check the image's name and tag$"):
        store.pull({"image": BOX})
    assert (tmp_path / "asked").read_text().split() == ["bob", "eve"]


def test_pulls_of_several_images_run_one_after_another(tmp_path: Path) -> None:
    store = pulling(tmp_path, "bob")
    runtime = tmp_path / "apptainer"
    alone = f"mkdir {tmp_path}/index || exit 1; sleep 0.05; rmdir {tmp_path}/index"
    runtime.write_text(runtime.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{alone}\n"))
    with ThreadPoolExecutor() as pool:
        pulled = list(pool.map(store.pull, [{"image": f"{BOX}-{n}"} for n in range(4)]))
    assert len({image.path for image in pulled}) == 4


def test_a_pull_that_hangs_does_not_hold_up_other_images_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "WAIT_FOR_PULLS_S", 0.2)
    (tmp_path / "cache").mkdir()
    with (tmp_path / "cache" / PULLS_LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert pulling(tmp_path, "bob").pull({"image": BOX}).path


def hostile_sif(
    path: Path, config: bytes, *, count: int = 1, place: int | None = None, size: int | None = None
) -> str:
    """One descriptor, and what it names; either may lie."""
    where = HEADER.size
    head = HEADER.pack(b"", b"SIF_MAGIC", b"01", b"02", b"", 0, 0, 0, count, where, 0, 0, 0)
    at = where + DESCRIPTOR.size if place is None else place
    length = len(config) if size is None else size
    row = DESCRIPTOR.pack(1, 1, 1, 0, 0, at, length, length, 0, 0, 0, 0, CONFIG_NAME, b"")
    path.write_bytes(head + row + config)
    return str(path)


@pytest.mark.parametrize(
    ("config", "lies"),
    [
        (b"{}", {"place": -1}),
        (b"{}", {"size": -1}),
        (b"{}", {"count": -1}),
        (b"[" * 100_000, {}),
        (b'{"Entrypoint": [1]}', {}),
        (b'{"Cmd": "sh"}', {}),
        (b'{"Env": ["A=\\u0000"]}', {}),
        (b'{"WorkingDir": 5}', {}),
    ],
)
def test_an_image_that_lies_about_itself_is_one_sentence(
    tmp_path: Path, config: bytes, lies: dict[str, int]
) -> None:
    with pytest.raises(PullFailed) as said:
        Image(hostile_sif(tmp_path / "i.sif", config, **lies), None)
    assert said.value.reason == "ErrImagePull"
    assert str(said.value).startswith(f"{tmp_path}/i.sif: its ")
