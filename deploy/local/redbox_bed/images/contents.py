"""What `deploy/images/contents.toml` says: the project's images and what each contains.

The Dockerfile beside the list is for everybody who has a Docker daemon; a test holds the two together.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from redbox_bed.core.places import CHECKOUT

FOLDER = CHECKOUT / "deploy" / "images"


@dataclass(frozen=True)
class Program:
    """One image: its name, its entry point, and the lock of what it needs beside Python's own library."""

    name: str
    title: str
    entrypoint: tuple[str, ...]
    lock: str | None


@dataclass(frozen=True)
class ImageList:
    """All images, and what they have in common."""

    suite: str
    python: str
    packages: tuple[str, ...]
    user: str
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    programs: tuple[Program, ...]

    @property
    def library(self) -> str:
        """Where Debian's Python looks for what its administrator installed."""
        return f"usr/local/lib/python{self.python}/dist-packages"

    @property
    def account(self) -> tuple[str, str]:
        """Lines for /etc/passwd and /etc/group: a user with a name, but no home, no shell and no password."""
        user, group = self.user.split(":")
        return f"redbox:x:{user}:{group}:Red Box:/nonexistent:/usr/sbin/nologin", f"redbox:x:{group}:"


def read_image_list(folder: Path = FOLDER) -> ImageList:
    listed = tomllib.loads((folder / "contents.toml").read_text())
    programs = tuple(
        Program(name, each["title"], tuple(each["entrypoint"]), each.get("lock"))
        for name, each in listed.pop("images").items()
    )
    return ImageList(**{**listed, "packages": tuple(listed["packages"])}, programs=programs)
