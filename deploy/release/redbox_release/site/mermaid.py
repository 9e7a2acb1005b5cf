"""Mermaid's script, which draws pictures in the reader's browser: a pinned package of npm, in the cache."""

from __future__ import annotations

import base64
import hashlib
import shutil
import tarfile
from functools import partial
from pathlib import Path

from redbox_bed.core.build_cache import ensure_built
from redbox_bed.core.commands import run_command
from redbox_bed.core.errors import BedError
from redbox_bed.core.places import Places

PACKAGE = "mermaid@12.3.0"
INTEGRITY = "sha512-4113TdXeLAsMruJ79OpFL5O8+LTFXhQqZ260rF3tgUmiNAtRm4Uume04I+65PRN6yZ69J4f8rVYWW8zRk65UYw=="
_SCRIPT = "package/dist/mermaid.min.js"
_WITHIN_S = 300


def mermaid_script() -> Path:
    """The script's file in the cache."""
    built = ensure_built(Places.of().cache / "site" / PACKAGE.replace("@", "-"), partial(_fetch, INTEGRITY))
    return built / "mermaid.min.js"


def _fetch(integrity: str, folder: Path) -> None:
    if not shutil.which("npm"):
        raise BedError(
            f"the pictures need {PACKAGE}: install npm (Debian: apt-get install npm), then run this again"
        )
    command = ("npm", "pack", PACKAGE, "--silent", "--pack-destination", str(folder))
    run_command(command, f"npm could not fetch {PACKAGE}", timeout=_WITHIN_S, cwd=str(folder))
    (archive,) = folder.glob("*.tgz")
    verify(archive, integrity)
    with tarfile.open(archive) as packed:
        content = packed.extractfile(_SCRIPT)
        if content is None:
            raise BedError(f"{PACKAGE} has no {_SCRIPT}: another version's layout")
        (folder / "mermaid.min.js").write_bytes(content.read())
    archive.unlink()


def verify(archive: Path, integrity: str) -> None:
    with archive.open("rb") as content:
        digest = hashlib.file_digest(content, "sha512").digest()
    if base64.b64encode(digest).decode() != integrity.removeprefix("sha512-"):
        raise BedError(
            f"{archive.name} is not the file that redbox_release/site/mermaid.py pins: it was not used"
        )
