"""What containerd of a new node begins with: images that a node before it has imported and unpacked.

That takes 10 s of CPU on each node. Nothing changes a file of an image once it is there, so a new node gets
links to files that are kept in the cache; only containerd's databases, which say what is there, are copied.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

from redbox_bed.core.build_cache import ensure_built, forget_unused, key_of
from redbox_bed.core.errors import DaemonError
from redbox_bed.core.places import Places
from redbox_bed.hosts.host import Host
from redbox_bed.images.oci import Image

CONTAINERD = "containerd"
FOLDER = "/var/lib/containerd"
_DATABASES = "*/*.db"
_TREE = "tree"
_LINKED_WITHIN_S = 120


def begin_with_unpacked(node: Host, places: Places) -> None:
    """Before its first containerd starts. What is missing or another version is imported as before."""
    folder = node.own_folder(FOLDER)
    kept = [path for path in _shelf(places).glob("*") if path.is_dir() and not path.suffix]
    if not kept or any(folder.iterdir()):
        return
    try:
        _link(max(kept, key=_age) / _TREE, folder)
    except (OSError, subprocess.SubprocessError):  # another filesystem, or forgotten meanwhile
        for path in folder.iterdir():
            shutil.rmtree(path)


def keep_unpacked(node: Host, places: Places, images: Iterable[Image]) -> None:
    """For new nodes, unless this one has pods; again when more has changed than our code, the last layer."""
    digests = {layer.digest for image in images for layer in image.layers[:-1]}
    target = _shelf(places) / key_of(*sorted(digests))
    if target.exists() or node.run("ctr", "--namespace=k8s.io", "containers", "list", "--quiet").stdout:
        return
    ensure_built(target, lambda folder: _keep(node, folder / _TREE))
    forget_unused(_shelf(places), "*", _age(target))


def _keep(node: Host, tree: Path) -> None:
    """While containerd stands still, so that its databases are those of one moment."""
    if (containerd := node.daemon_process(CONTAINERD)) is None:
        raise DaemonError(f"{CONTAINERD} is not running on {node.name}")
    tree.mkdir()
    containerd.send(signal.SIGSTOP)
    try:
        _link(node.own_folder(FOLDER), tree)
    finally:
        containerd.send(signal.SIGCONT)


def _link(source: Path, target: Path) -> None:
    command = ["cp", "--archive", "--link", f"{source}/.", str(target)]
    subprocess.run(command, check=True, capture_output=True, timeout=_LINKED_WITHIN_S)
    for database in target.glob(_DATABASES):
        database.unlink()
        shutil.copy2(source / database.relative_to(target), database)


def _shelf(places: Places) -> Path:
    return places.cache / CONTAINERD


def _age(folder: Path) -> float:
    return folder.stat().st_mtime
