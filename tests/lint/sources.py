"""What is source in this checkout: found by walking, so it works without git, and for files not yet added."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_SOURCE = {"node_modules", "__pycache__"}
NOT_SOURCE_AT_THE_ROOT = {"build", "dist"}


def sources(root: Path = ROOT) -> list[Path]:
    """List the files below `root` that are neither made by a tool nor hidden (`.ci` is not hidden)."""
    found: list[Path] = []
    for folder, folders, files in os.walk(root):
        made = NOT_SOURCE_AT_THE_ROOT if Path(folder) == ROOT else set()
        folders[:] = sorted(name for name in folders if _holds_source(name) and name not in made)
        found += [Path(folder, name) for name in sorted(files) if not Path(folder, name).is_symlink()]
    return found


def _holds_source(folder: str) -> bool:
    return folder == ".ci" or not (folder in NOT_SOURCE or folder.startswith("."))
