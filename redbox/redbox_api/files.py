"""The contract's part on files in jobs' working directories."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from redbox_api.models import ResponseModel


class FileEntry(ResponseModel):
    """A file in a job's working directory."""

    path: str
    size: int
    mode: int
    modified_at: datetime
    kind: Literal["file", "directory", "symlink", "other"]
    target: str | None = None


class FileList(ResponseModel):
    """The files that match a glob."""

    items: list[FileEntry]
    truncated: bool = False
