"""What a new node's containerd begins with, and what of it is kept."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import cast

import pytest

from redbox_bed.core.places import Places
from redbox_bed.hosts.host import Host
from redbox_bed.images.oci import Image, Layer
from redbox_bed.images.unpacked import begin_with_unpacked, keep_unpacked

UNPACKED = "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/bin/busybox"
DATABASE = "io.containerd.metadata.v1.bolt/meta.db"


@dataclass
class Node:
    """A host whose containerd has a folder; it is a process of its own, too."""

    folder: Path
    containers: str = ""
    signals: list[int] = field(default_factory=list)

    def own_folder(self, _: str) -> Path:
        return self.folder

    def run(self, *_: str) -> CompletedProcess[str]:
        return CompletedProcess((), 0, self.containers)

    def daemon_process(self, _: str) -> Node:
        return self

    def send(self, number: int) -> None:
        self.signals.append(number)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(state=tmp_path / "state", cache=tmp_path / "cache")


def node(tmp_path: Path, name: str, **files: str) -> Node:
    for path, content in {"": "", **files}.items():
        file = tmp_path / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content) if path else file.mkdir()
    return Node(tmp_path / name)


def images(*layers: str) -> list[Image]:
    return [Image("bed.local/a:dev", "amd64", tuple(Layer(Path(), name, 1) for name in layers), ("/a",))]


def keep(one: Node, places: Places, *layers: str) -> None:
    keep_unpacked(cast("Host", one), places, images(*layers))


def begin(one: Node, places: Places) -> None:
    begin_with_unpacked(cast("Host", one), places)


def test_a_new_node_has_the_files_of_an_old_one_and_a_database_of_its_own(
    tmp_path: Path, places: Places
) -> None:
    old = node(tmp_path, "old", **{UNPACKED: "program", DATABASE: "what is there"})
    keep(old, places, "base", "our code")
    assert old.signals == [signal.SIGSTOP, signal.SIGCONT]
    new = node(tmp_path, "new")
    begin(new, places)
    assert (new.folder / UNPACKED).samefile(old.folder / UNPACKED)
    assert (new.folder / DATABASE).read_text() == "what is there"
    assert not (new.folder / DATABASE).samefile(old.folder / DATABASE)


def test_a_node_with_images_keeps_them_and_one_without_any_begins_empty(
    tmp_path: Path, places: Places
) -> None:
    begin(first := node(tmp_path, "first"), places)
    assert list(first.folder.iterdir()) == []
    keep(node(tmp_path, "old", **{UNPACKED: "program"}), places, "base", "our code")
    begin(running := node(tmp_path, "running", **{DATABASE: "mine"}), places)
    assert [path.name for path in running.folder.iterdir()] == [DATABASE.partition("/")[0]]


def test_another_base_is_kept_in_place_of_the_old_one_but_not_a_change_of_our_code(
    tmp_path: Path, places: Places
) -> None:
    for name, layers in (("1", ("base", "code")), ("2", ("base", "changed")), ("3", ("newer", "code"))):
        keep(node(tmp_path, name, **{UNPACKED: name}), places, *layers)
        begin(new := node(tmp_path, f"after-{name}"), places)
        assert (new.folder / UNPACKED).read_text() == {"1": "1", "2": "1", "3": "3"}[name]
    assert len([path for path in (places.cache / "containerd").iterdir() if path.is_dir()]) == 1


def test_pods_are_not_kept(tmp_path: Path, places: Places) -> None:
    old = node(tmp_path, "old", **{UNPACKED: "program"})
    old.containers = "a-pod\n"
    keep(old, places, "base", "our code")
    assert not (places.cache / "containerd").exists()


def test_what_cannot_be_linked_is_not_there_half(tmp_path: Path, places: Places) -> None:
    keep(node(tmp_path, "old", **{UNPACKED: "program", DATABASE: "x"}), places, "base", "our code")
    (kept,) = (path for path in (places.cache / "containerd").iterdir() if path.is_dir())
    kept.joinpath("tree", DATABASE).unlink()
    kept.joinpath("tree", DATABASE).mkdir()
    begin(new := node(tmp_path, "new"), places)
    assert list(new.folder.iterdir()) == []
