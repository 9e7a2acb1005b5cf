"""The folder into which something is built: emptied first, if it is a build's own."""

from __future__ import annotations

import shutil
from pathlib import Path

from redbox_bed.core.errors import BedError


def make_empty(folder: Path, mark: str) -> None:
    """Empty it, or make it; `mark` is the file by which the next build finds that the folder is its own."""
    if folder.exists() and not (folder / mark).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise BedError(
            f"{folder} holds something else than an earlier build ({mark} is not there): name an empty folder"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / mark).touch()
