"""kube-network-policies, built from the Go module beside this package.

Only a test of an enforced NetworkPolicy runs it: it is built when that asks, in two minutes on two cores.
"""

from __future__ import annotations

from pathlib import Path

from redbox_bed.core.places import PACKAGE, Places
from redbox_bed.programs.golang import Program, Progress, ensure_program

MODULE = PACKAGE.parent / "network-policies"
PACKAGE_OF_PROGRAM = "sigs.k8s.io/kube-network-policies/cmd"


def ensure_network_policies(places: Places, progress: Progress) -> Path:
    """The program."""
    program = Program("kube-network-policies", MODULE, "some 600", PACKAGE_OF_PROGRAM)
    return ensure_program(program, places, progress)
