"""The command line of `redbox-companion`."""

import argparse
from collections.abc import Sequence
from importlib.metadata import version

PROGRAM = "redbox-companion"


def parser() -> argparse.ArgumentParser:
    """Describe what the companion is told."""
    described = argparse.ArgumentParser(
        prog=PROGRAM, description="Submits one Slurm job, relays its output, and exits as it did."
    )
    described.add_argument("--version", action="version", version=f"{PROGRAM} {version('red-box')}")
    return described


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line."""
    parser().parse_args(argv)
    return 0
