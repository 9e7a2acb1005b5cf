"""CoreDNS, built from the Go module beside this package.

Only tests of a Slurm that runs in pods need names of pods: it is built when the first of them asks.
"""

from __future__ import annotations

from pathlib import Path

from redbox_bed.core.places import PACKAGE, Places
from redbox_bed.programs.golang import Program, Progress, ensure_program

MODULE = PACKAGE.parent / "coredns"


def ensure_coredns(places: Places, progress: Progress) -> Path:
    """The program."""
    return ensure_program(Program("coredns", MODULE, "some 700"), places, progress)
