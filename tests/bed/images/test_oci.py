"""Layers and archives: what goes in comes out, and the same contents are the same image."""

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from redbox_bed.images.oci import Entry, Image, image_digest, write_archive, write_layer


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin" / "program").write_text("#!/bin/sh\n")
    (tree / "bin" / "program").chmod(0o755)
    (tree / "bin" / "link").symlink_to("program")
    (tree / "empty").mkdir()
    return tree


def image(tmp_path: Path, *contents: str) -> Image:
    layers = [
        write_layer(tmp_path / f"{content}.tar", entries=[Entry("file", content.encode())])
        for content in contents
    ]
    return Image("bed.local/thing:7", "amd64", tuple(layers), ("/program",), "65532:65532", labels={"a": "b"})


def archive_of(image: Image, present: set[str] | None = None) -> dict[str, bytes]:
    output = io.BytesIO()
    write_archive(image, output, present or set())
    return files_of(output.getvalue())


def files_of(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {member.name: opened.extractfile(member).read() for member in opened}  # type: ignore[union-attr]


def blob(archive: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    content = archive["blobs/" + descriptor["digest"].replace(":", "/")]
    assert len(content) == descriptor["size"]
    assert "sha256:" + hashlib.sha256(content).hexdigest() == descriptor["digest"]
    return content


def test_a_layer_has_the_files_with_their_rights_and_links(tmp_path: Path, tree: Path) -> None:
    layer = write_layer(tmp_path / "layer.tar", tree, [Entry("etc/conf/name", b"value", 0o600)])
    with tarfile.open(layer.file) as archive:
        members = {member.name: member for member in archive}
    assert members["bin/program"].mode == 0o755
    assert members["bin/link"].linkname == "program"
    assert members["empty"].isdir()
    assert members["etc/conf"].isdir()
    assert members["etc/conf/name"].mode == 0o600


def test_when_and_where_a_layer_is_made_does_not_matter(tmp_path: Path, tree: Path) -> None:
    first = write_layer(tmp_path / "first.tar", tree)
    for path in tree.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    moved = tree.rename(tmp_path / "elsewhere")
    assert write_layer(tmp_path / "second.tar", moved).digest == first.digest
    (moved / "bin" / "program").write_text("other")
    assert write_layer(tmp_path / "third.tar", moved).digest != first.digest


def test_an_archive_leads_from_its_index_to_every_layer(tmp_path: Path) -> None:
    archive = archive_of(image(tmp_path, "lower", "upper"))
    (descriptor,) = json.loads(archive["index.json"])["manifests"]
    assert descriptor["annotations"]["io.containerd.image.name"] == "bed.local/thing:7"
    manifest = json.loads(blob(archive, descriptor))
    config = json.loads(blob(archive, manifest["config"]))
    assert config["config"]["Entrypoint"] == ["/program"]
    assert config["config"]["User"] == "65532:65532"
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert [files_of(blob(archive, layer)) for layer in manifest["layers"]] == [
        {"file": b"lower"},
        {"file": b"upper"},
    ]


def test_layers_that_the_receiver_has_are_left_out(tmp_path: Path) -> None:
    thing = image(tmp_path, "lower", "upper")
    names = archive_of(thing, {thing.layers[0].digest})
    assert "blobs/" + thing.layers[0].digest.replace(":", "/") not in names
    assert "blobs/" + thing.layers[1].digest.replace(":", "/") in names


def test_an_image_is_known_by_its_contents(tmp_path: Path) -> None:
    assert image_digest(image(tmp_path, "a")) == image_digest(image(tmp_path, "a"))
    assert image_digest(image(tmp_path, "a")) != image_digest(image(tmp_path, "b"))
