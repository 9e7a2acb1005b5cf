"""Files of ConfigMaps and Secrets as the kubelet projects them: read as one version, copied with other modes.

The kubelet writes a new version into a new folder and then moves the link `..data` to it, so that all files
change together. A reader that resolves the link once has files of one version.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

_LINK = "..data"
_ATTEMPTS = 3


def version_folder(folder: Path) -> Path:
    """Where the newest version is: the folder itself if nothing is projected into it."""
    link = folder / _LINK
    return link.resolve() if link.is_symlink() else folder


def read_files(folder: Path) -> Mapping[str, bytes]:
    """Each file's content by its name; of one version."""
    for _ in range(_ATTEMPTS):
        try:
            return _read(version_folder(folder))
        except FileNotFoundError:  # the version was removed while it was read
            continue
    raise FileNotFoundError(f"the files in {folder} change faster than they can be read")


def _read(version: Path) -> Mapping[str, bytes]:
    if not version.is_dir():
        raise FileNotFoundError(version)
    files = sorted(path for path in version.rglob("*") if path.is_file())
    return {str(path.relative_to(version)): path.read_bytes() for path in files}


def digests(folder: Path) -> Mapping[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in read_files(folder).items()}


def copy_private(source: Path, target: Path) -> None:
    """Copy into `target` what slurmdbd and its keys must be: this account's own, and closed to all others."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in read_files(source).items():
        file = target / name
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as output:  # noqa: PTH123 - a path has no descriptor
            output.write(content)
