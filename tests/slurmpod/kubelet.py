"""Projects files into a folder as the kubelet does: a folder for each version, and a link to the newest."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path


def project(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    link = folder / "..data"
    before = link.resolve() if link.is_symlink() else None
    number = int(before.name.rpartition("_")[2]) + 1 if before else 1
    version = folder / f"..2026_11_28_{number}"
    version.mkdir()
    for name, content in files.items():
        (version / name).write_bytes(content)
    moved = folder / "..data_tmp"
    moved.symlink_to(version.name)
    moved.rename(link)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    for path in folder.iterdir():
        if path.is_symlink() and not path.exists():
            path.unlink()
    if before:
        shutil.rmtree(before)
