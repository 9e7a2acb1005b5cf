"""Which version is released, and the one time that every file of it carries."""

from __future__ import annotations

import os
import subprocess
import tomllib
from dataclasses import dataclass

from redbox_bed.core.errors import BedError
from redbox_bed.core.places import CHECKOUT
from redbox_bed.images.node_images import architecture


@dataclass(frozen=True)
class Source:
    """The commit's version and time, and the machine that it is built for."""

    version: str
    epoch: int
    architecture: str

    @classmethod
    def of_checkout(cls, machine: str = "") -> Source:
        """SOURCE_DATE_EPOCH where it is set, else the time of the commit; for this machine, or another."""
        project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
        return cls(project["version"], _epoch(), machine or architecture())

    @property
    def stem(self) -> str:
        return f"red-box-{self.version}"


def _epoch() -> int:
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if given.isdigit():
        return int(given)
    if given:
        raise BedError(f"SOURCE_DATE_EPOCH is {given!r}: it must be a number of seconds")
    log = ["git", "-C", str(CHECKOUT), "log", "-1", "--format=%ct"]
    try:
        return int(subprocess.run(log, check=True, capture_output=True, text=True, timeout=60).stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise BedError(
            "the time of the commit is unknown here (no git, or no commit): set SOURCE_DATE_EPOCH"
        ) from error
