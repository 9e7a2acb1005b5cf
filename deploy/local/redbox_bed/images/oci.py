"""OCI images without a daemon: layers out of folders and files, and archives that `ctr images import` takes.

Everything is deterministic: the same contents give the same digests, so that an image that is there is
known. Which images there are, and what is in them, is `images`' business.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
# Not compressed: it never leaves the machine, and the import is three times as fast.
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Layer:
    """A tar file and its digest."""

    file: Path
    digest: str
    size: int


@dataclass(frozen=True)
class Image:
    """What an image runs, as whom, and on which layers (the lowest first)."""

    name: str
    architecture: str
    layers: tuple[Layer, ...]
    entrypoint: tuple[str, ...]
    user: str = ""
    working_directory: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A file that is given by its content, not taken from a folder."""

    path: str
    content: bytes
    mode: int = 0o644


def write_layer(target: Path, tree: Path | None = None, entries: Iterable[Entry] = ()) -> Layer:
    """All that is in `tree`, then `entries`, as a tar file in an order that depends on the names alone."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        if tree is not None:
            _add_tree(archive, tree)
        for folder in sorted({parent for entry in entries for parent in _parents(entry.path)}):
            archive.addfile(_stamped(_folder(folder)))
        for entry in sorted(entries, key=lambda entry: entry.path):
            info = tarfile.TarInfo(entry.path.lstrip("/"))
            info.size, info.mode = len(entry.content), entry.mode
            archive.addfile(_stamped(info), io.BytesIO(entry.content))
    with target.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    _digest_file(target).write_text(f"sha256:{digest}")
    return read_layer(target)


def read_layer(file: Path) -> Layer:
    """A layer that was written before."""
    return Layer(file, _digest_file(file).read_text(), file.stat().st_size)


def _digest_file(layer: Path) -> Path:
    return layer.with_name(layer.name + ".digest")


def _add_tree(archive: tarfile.TarFile, tree: Path) -> None:
    for path in sorted(tree.rglob("*")):
        info = archive.gettarinfo(str(path), arcname=str(path.relative_to(tree)))
        if info.isreg():
            with path.open("rb") as content:
                archive.addfile(_stamped(info), content)
        else:
            archive.addfile(_stamped(info))


def _parents(path: str) -> Iterable[str]:
    """The folders above a path, without the root itself."""
    return (str(parent).lstrip("/") for parent in Path("/", path.lstrip("/")).parents if str(parent) != "/")


def _folder(path: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    return info


def _stamped(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without what differs from one build to the next: times, and names of users (the numbers count)."""
    info.mtime, info.uname, info.gname = 0, "", ""
    return info


def image_config(image: Image) -> bytes:
    """The configuration blob: what a container runtime reads to start it."""
    settings = {
        "Entrypoint": list(image.entrypoint),
        "Cmd": list(image.arguments),
        "User": image.user,
        "WorkingDir": image.working_directory,
        "Env": [f"{name}={value}" for name, value in sorted(image.environment.items())],
        "Labels": dict(sorted(image.labels.items())),
    }
    return _json(
        {
            "architecture": image.architecture,
            "os": "linux",
            "config": {key: value for key, value in settings.items() if value},
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in image.layers]},
        }
    )


def image_manifest(image: Image) -> bytes:
    config = image_config(image)
    layers = [{"mediaType": _LAYER, "digest": layer.digest, "size": layer.size} for layer in image.layers]
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": digest_of(config), "size": len(config)},
            "layers": layers,
        }
    )


def image_digest(image: Image) -> str:
    """By which containerd knows the image."""
    return digest_of(image_manifest(image))


def write_archive(image: Image, output: IO[bytes], present: Collection[str] = ()) -> None:
    """The image as one stream, without the layers whose digests the receiver has; size costs no memory."""
    manifest, config = image_manifest(image), image_config(image)
    tag = image.name.rpartition(":")[2]
    annotations = {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": tag}
    descriptor = {"mediaType": MANIFEST, "digest": digest_of(manifest), "size": len(manifest)}
    index = _json({"schemaVersion": 2, "manifests": [{**descriptor, "annotations": annotations}]})
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_CHUNK) as archive:
        _add_bytes(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add_bytes(archive, "index.json", index)
        for blob in (manifest, config):
            _add_bytes(archive, _blob_path(digest_of(blob)), blob)
        for layer in image.layers:
            if layer.digest not in present:
                _add_layer(archive, layer)


def _add_bytes(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    info = tarfile.TarInfo(path)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def _add_layer(archive: tarfile.TarFile, layer: Layer) -> None:
    info = tarfile.TarInfo(_blob_path(layer.digest))
    info.size = layer.size
    with layer.file.open("rb") as content:
        archive.addfile(info, content)


def _blob_path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def digest_of(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
