"""A registry of container images, built from the Go module beside this package.

It is built when the demo or a test of images asks first, in a minute and a half on two cores.
"""

from __future__ import annotations

from pathlib import Path

from redbox_bed.core.places import PACKAGE, Places
from redbox_bed.programs.golang import Program, Progress, ensure_program

MODULE = PACKAGE.parent / "registry"


def ensure_registry(places: Places, progress: Progress) -> Path:
    """The program."""
    return ensure_program(Program("registry", MODULE, "some 400"), places, progress)
