"""metrics-server, built from the Go module beside this package.

Only a test of `kubectl top` runs one: it is built when that asks, in two to three minutes on two cores. It
demands a newer Go than the rest of the bed.
"""

from __future__ import annotations

from pathlib import Path

from redbox_bed.core.places import PACKAGE, Places
from redbox_bed.programs.golang import Program, Progress, ensure_program

MODULE = PACKAGE.parent / "metrics-server"
PACKAGE_OF_PROGRAM = "sigs.k8s.io/metrics-server/cmd/metrics-server"


def ensure_metrics_server(places: Places, progress: Progress) -> Path:
    """The program."""
    return ensure_program(Program("metrics-server", MODULE, "some 600", PACKAGE_OF_PROGRAM), places, progress)
