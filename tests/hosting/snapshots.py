"""Snapshots: what a builder made, next to the tests, for a reader of a change.

`UPDATE_SNAPSHOTS=1 pytest tests/hosting` writes them.
"""

from __future__ import annotations

import os
from pathlib import Path


def check(file: Path, made: str) -> None:
    """Fail unless the file has this text."""
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(made)
    assert file.exists(), f"no snapshot {file}: run with UPDATE_SNAPSHOTS=1"
    assert made == file.read_text(), f"{file.name} is made differently; UPDATE_SNAPSHOTS=1 writes it"
